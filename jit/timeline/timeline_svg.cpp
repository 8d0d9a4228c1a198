// jit/timeline/timeline_svg.cpp -- a timeline as a picture: a band of tracks for each rank, time from left to right.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "jit/timeline/timeline_view.h"

namespace seqtile {
namespace {

constexpr double kWidth = 1100, kLeft = 60, kRight = 15, kTop = 48, kTrack = 18, kBetweenRanks = 22;

struct Colour {
  const char *role, *fill;
};
constexpr Colour kColours[] = {{"push", "#8ab6d6"}, {"produce", "#4c956c"}, {"use", "#7fb685"},
                               {"sum", "#e9c46a"},  {"last", "#c9c9c9"},    {"wait", "#d1495b"}};

const char* colour_of(const std::string& role) {
  for (const Colour& colour : kColours)
    if (role == colour.role) return colour.fill;
  return "#a0a0c0";
}

class Picture {
 public:
  explicit Picture(const TimelineView& view) : view_(view) {
    double y = kTop;
    for (const int tracks : view.tracks) {
      tops_.push_back(y);
      y += std::max(tracks, 1) * kTrack + kBetweenRanks;
    }
    height_ = y - kBetweenRanks + 12;
  }

  std::string draw() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        kWidth, height_);
    draw_legend();
    draw_axis();
    for (size_t rank = 0; rank < tops_.size(); ++rank)
      add("<text x=\"6\" y=\"{:.1f}\">rank {}</text>\n", tops_[rank] + 13, rank);
    // Waits lie on top of the programs that they are part of, and flags on top of both.
    for (const bool is_wait : {false, true})
      for (const TimelineSpan& span : view_.spans)
        if (span.is_wait == is_wait) draw_span(span);
    draw_flags();
    return std::move(text_) + "</svg>\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  double us(int64_t time_ns) const { return static_cast<double>(time_ns - view_.start_ns) / 1000; }
  double total_us() const { return std::max(us(view_.end_ns), 1e-3); }
  double x(int64_t time_ns) const { return kLeft + us(time_ns) / total_us() * (kWidth - kLeft - kRight); }
  double middle(size_t rank, int track) const { return tops_[rank] + (track + 0.5) * kTrack; }

  void draw_legend() {
    double at = kLeft;
    for (const Colour& colour : kColours) {
      add("<rect x=\"{0:.0f}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{1}\"/><text x=\"{2:.0f}\" "
          "y=\"18\">{3}</text>\n",
          at, colour.fill, at + 16, colour.role);
      at += 80;
    }
    add("<text x=\"{:.0f}\" y=\"18\">a line: a flag, from who sends it to the wait that it ends</text>\n", at);
  }

  /// Five to ten steps of 1, 2 or 5 times a power of ten.
  void draw_axis() {
    const double power = std::pow(10, std::floor(std::log10(total_us() / 5))), rest = total_us() / 5 / power;
    const double step = power * (rest < 2 ? 1 : rest < 5 ? 2 : 5);
    const bool is_long = step >= 1000;
    for (double at = 0; at <= total_us(); at += step) {
      const double left = kLeft + at / total_us() * (kWidth - kLeft - kRight);
      add("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.0f}\" stroke=\"#e4e4e4\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" fill=\"#606060\">{4:g} {5}</text>\n",
          left, kTop - 10, height_ - 6, kTop - 12, is_long ? at / 1000 : at, is_long ? "ms" : "us");
    }
  }

  void draw_span(const TimelineSpan& span) {
    const std::string what = span.is_wait ? fmt::format("waits for rank {}", span.begin.peer) : span.begin.role;
    const double left = x(span.begin.time_ns), width = std::max(x(span.end_ns) - left, 0.4);
    const double top = tops_[span.rank] + span.track * kTrack, inset = span.is_wait ? 5 : 1;
    add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"#ffffff\" "
        "stroke-width=\"0.4\"><title>rank {}, epoch {}, program {}: {}, {:.1f} us</title></rect>\n",
        left, top + inset, width, kTrack - 2 * inset, colour_of(span.is_wait ? "wait" : span.begin.role), span.rank,
        span.begin.epoch, span.begin.program, what, us(span.end_ns) - us(span.begin.time_ns));
  }

  void draw_flags() {
    std::map<size_t, const TimelineFlag*> sent;
    for (const TimelineFlag& flag : view_.sent) sent[flag.number] = &flag;
    for (const TimelineFlag& flag : view_.arrived) {
      const TimelineFlag& from = *sent.at(flag.number);
      if (from.rank == flag.rank) continue;
      add("<line x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\" stroke=\"#303030\" stroke-width=\"0.6\" "
          "opacity=\"0.6\"/>\n",
          x(from.event.time_ns), middle(from.rank, from.track), x(flag.event.time_ns), middle(flag.rank, flag.track));
    }
  }

  const TimelineView& view_;
  std::vector<double> tops_;
  double height_ = 0;
  std::string text_;
};

}  // namespace

std::string timeline_svg(std::span<const std::vector<TimelineEvent>> ranks) { return Picture(view_of(ranks)).draw(); }

}  // namespace seqtile
