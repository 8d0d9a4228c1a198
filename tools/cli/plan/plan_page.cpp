// tools/cli/plan/plan_page.cpp -- a plan as a page of HTML: pictures of memory and costs, and a table to search.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cache/database/text.h"
#include "jit/base/counted.h"
#include "planner/solver/plan_costs.h"
#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {
namespace {

constexpr double kWidth = 1100, kLeft = 90, kTop = 12, kHeight = 170, kBar = 320;

struct Part {
  const char *name, *fill;
  double planner::OperatorCost::*cost;
};
constexpr Part kParts[] = {{"computation", "#4c956c", &planner::OperatorCost::compute},
                           {"communication", "#8ab6d6", &planner::OperatorCost::communication},
                           {"resharding", "#d1495b", &planner::OperatorCost::reshard}};

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Plan</title>
<style>
body { font-family: sans-serif; font-size: 13px; margin: 16px; color: #202020; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 2px 10px 2px 0; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
td.number, th.number { text-align: right; }
input { width: 320px; margin: 8px 0; padding: 3px; }
h2 { font-size: 15px; margin: 18px 0 6px 0; }
</style></head><body>
)";

constexpr const char* kScript = R"(<script>
const search = document.getElementById("search"), rows = document.querySelectorAll("#operators tbody tr");
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase();
  for (const row of rows) row.style.display = row.textContent.toLowerCase().includes(wanted) ? "" : "none";
});
</script>
)";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : cache::one_line(text, text.size())) {
    if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '&') result += "&amp;";
    else if (c == '"') result += "&quot;";
    else result += c;
  }
  return result;
}

class Page {
 public:
  Page(const Priced& priced, const planner::Solution& solution)
      : graph_(priced.graph),
        problem_(priced.problem),
        solution_(solution),
        costs_(planner::operator_costs(priced.graph, priced.problem, solution.choices)) {}

  std::string write() {
    add("{}", kHead);
    write_summary();
    draw_memory();
    write_operators();
    add("{}</body></html>\n", kScript);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  /// Draws a bar of the three parts of a cost; `scale` is the width of a unit of cost.
  void draw_bar(const planner::OperatorCost& cost, double scale) {
    add("<svg width=\"{}\" height=\"12\">", kBar);
    double left = 0;
    for (const Part& part : kParts) {
      const double width = cost.*part.cost * scale;
      if (width > 0)
        add("<rect x=\"{:.2f}\" width=\"{:.2f}\" height=\"12\" fill=\"{}\"><title>{} {:.6g}</title></rect>", left,
            width, part.fill, part.name, cost.*part.cost);
      left += std::max(width, 0.0);
    }
    add("</svg>");
  }

  void write_summary() {
    std::string mesh;
    for (int axis = 0; axis < graph_.mesh.num_axes; ++axis)
      mesh += (axis ? " x " : "") + std::to_string(graph_.mesh.shape[static_cast<size_t>(axis)]);
    planner::OperatorCost sum;
    for (const planner::OperatorCost& cost : costs_)
      for (const Part& part : kParts) sum.*part.cost += cost.*part.cost;
    add("<h2>{} on {} {}, {}</h2>\n<p>objective {:.10g}, {}; {} on a device as the strategies count "
        "it</p>\n<p>",
        counted(costs_.size(), "operator"), mesh, plural_of(graph_.mesh.devices(graph_.mesh.all()), "device"),
        graph_.is_training ? "training" : "prefill", solution_.objective,
        solution_.is_exact() ? "exact" : fmt::format("at most {:.2g} % above the best", 100 * solution_.gap()),
        format_bytes(solution_.memory));
    for (const Part& part : kParts)
      add("<svg width=\"12\" height=\"12\"><rect width=\"12\" height=\"12\" fill=\"{}\"/></svg> {} {:.6g} &nbsp; ",
          part.fill, part.name, sum.*part.cost);
    add("</p>\n");
    draw_bar(sum, sum.total() > 0 ? kBar / sum.total() : 0);
    add("\n");
  }

  /// Draws the bytes after each step as an area, and the bytes of the parameters in front.
  void draw_memory() {
    const planner::MemoryTimeline timeline = planner::memory_timeline(graph_, problem_, solution_.choices);
    const double most = std::max(timeline.peak(), 1.0), steps = static_cast<double>(timeline.bytes.size());
    const auto x = [&](double step) { return kLeft + step / steps * (kWidth - kLeft); };
    const auto y = [&](double bytes) { return kTop + (1 - bytes / most) * kHeight; };
    add("<h2>Memory over time: parameters and activations of a device{}, at most {}</h2>\n",
        graph_.is_training ? ", forward, then backward" : "", format_bytes(timeline.peak()));
    add("<svg id=\"memory\" viewBox=\"0 0 {} {}\" width=\"{}\" font-family=\"sans-serif\" font-size=\"11\">\n", kWidth,
        kTop + kHeight + 20, kWidth);
    std::string area = fmt::format("M{:.1f} {:.1f}", x(0), y(0));
    for (size_t step = 0; step < timeline.bytes.size(); ++step) {
      const auto at = static_cast<double>(step);
      area += fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", x(at), y(timeline.bytes[step]), x(at + 1),
                          y(timeline.bytes[step]));
    }
    add("<path d=\"{}L{:.1f} {:.1f}Z\" fill=\"#8ab6d6\"/>\n", area, x(steps), y(0));
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#e9c46a\"><title>parameters {}"
        "</title></rect>\n",
        x(0), y(timeline.parameters), x(steps) - x(0), y(0) - y(timeline.parameters),
        format_bytes(timeline.parameters));
    for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0})
      add("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#e4e4e4\"/><text x=\"0\" "
          "y=\"{3:.1f}\" fill=\"#606060\">{4}</text>\n",
          x(0), x(steps), y(share * most), y(share * most) + 4, format_bytes(share * most));
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#606060\">lower area: memory that is held all the "
        "time</text>\n</svg>\n",
        x(0), kTop + kHeight + 16);
  }

  void write_operators() {
    double most = 0;
    for (const planner::OperatorCost& cost : costs_) most = std::max(most, cost.total());
    add("<h2>Operators</h2>\n<input id=\"search\" type=\"search\" placeholder=\"name, operator or strategy\">\n"
        "<table id=\"operators\"><thead><tr><th>operator</th><th>what</th><th>strategy</th><th>result</th>");
    for (const Part& part : kParts) add("<th class=\"number\">{}</th>", part.name);
    add("<th class=\"number\">memory</th><th>costs</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < costs_.size(); ++i) write_operator(i, most > 0 ? kBar / most : 0);
    add("</tbody></table>\n");
  }

  void write_operator(size_t i, double scale) {
    const planner::Node& node = graph_.nodes[i];
    const planner::Strategy& strategy = node.strategies[static_cast<size_t>(solution_.choices[i])];
    std::string layouts;
    for (size_t member = 0; member < node.results.size(); ++member)
      layouts += (member ? " " : "") +
                 planner::layout_name(strategy.results[member], static_cast<int>(node.results[member].shape.size()));
    add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", escaped(node.name),
        escaped(node.module.empty() ? node.target.empty() ? node.op : node.target : node.module),
        escaped(strategy.name), layouts);
    for (const Part& part : kParts) add("<td class=\"number\">{:.4g}</td>", costs_[i].*part.cost);
    add("<td class=\"number\">{}</td><td>", format_bytes(costs_[i].memory));
    draw_bar(costs_[i], scale);
    add("</td></tr>\n");
  }

  const planner::Graph& graph_;
  const planner::Problem& problem_;
  const planner::Solution& solution_;
  const std::vector<planner::OperatorCost> costs_;
  std::string text_;
};

}  // namespace

std::string plan_page(const Priced& priced, const planner::Solution& solution) {
  return Page(priced, solution).write();
}

}  // namespace seqtile::cli
