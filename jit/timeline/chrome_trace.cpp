// jit/timeline/chrome_trace.cpp -- a timeline as Chrome's trace format.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "jit/timeline/timeline_view.h"

namespace seqtile {
namespace {

using Json = nlohmann::json;

class Writer {
 public:
  explicit Writer(const TimelineView& view) : view_(view) {}

  Json write() {
    for (size_t rank = 0; rank < view_.tracks.size(); ++rank)
      items_.push_back(
          {{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    for (const TimelineSpan& span : view_.spans) {
      const std::string name = span.is_wait ? fmt::format("wait for rank {}", span.begin.peer) : span.begin.role;
      add("X", span.rank, span.track, name, span.is_wait ? "wait" : "program", span.begin)["dur"] =
          us(span.end_ns - span.begin.time_ns);
    }
    for (const TimelineFlag& flag : view_.sent) {
      add("i", flag.rank, flag.track, fmt::format("send to rank {}", flag.event.peer), "publish", flag.event)["s"] =
          "t";
      add("s", flag.rank, flag.track, "flag", "flag", flag.event)["id"] = flag.number;
    }
    for (const TimelineFlag& flag : view_.arrived) {
      Json& item = add("f", flag.rank, flag.track, "flag", "flag", flag.event);
      item["id"] = flag.number, item["bp"] = "e";
    }
    return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(items_)}};
  }

 private:
  Json& add(const char* phase, size_t rank, int track, const std::string& name, const char* category,
            const TimelineEvent& event) {
    Json args{{"epoch", event.epoch}, {"program", event.program}};
    if (event.peer >= 0) args.update({{"peer", event.peer}, {"phase", event.phase}, {"chunk", event.chunk}});
    return items_.emplace_back(Json{{"ph", phase},
                                    {"pid", rank},
                                    {"tid", track},
                                    {"name", name},
                                    {"cat", category},
                                    {"ts", us(event.time_ns - view_.start_ns)},
                                    {"args", std::move(args)}});
  }

  static double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

  const TimelineView& view_;
  Json items_ = Json::array();
};

}  // namespace

std::string chrome_trace(std::span<const std::vector<TimelineEvent>> ranks) {
  return Writer(view_of(ranks)).write().dump(1);
}

}  // namespace seqtile
