// jit/fabric/chrome_trace.cpp -- events of all ranks as Chrome's trace format.
// SPDX-License-Identifier: Apache-2.0
//
// A program is a span on the first track of its rank that is free when it starts, so a rank has as many tracks as
// programs ran at once; what it waits for are spans inside. An arrow leads from a flag to the first wait that it ends.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "jit/timeline.h"

namespace seqtile {
namespace {

using Json = nlohmann::json;
using ProgramKey = std::pair<int64_t, int64_t>;                           // epoch, program
using WaitKey = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;  // and phase, peer, chunk
using FlagKey = std::tuple<int64_t, int64_t, size_t, size_t, int64_t>;    // epoch, phase, from, to, chunk

ProgramKey program_of(const TimelineEvent& e) { return {e.epoch, e.program}; }
WaitKey wait_of(const TimelineEvent& e) { return {e.epoch, e.program, e.phase, e.peer, e.chunk}; }

struct Span {
  const TimelineEvent* begin;
  int64_t end_ns;
};

/// Programs that have both a begin and an end, in the order of their begins.
std::vector<Span> spans_of(const std::vector<TimelineEvent>& events) {
  std::map<ProgramKey, const TimelineEvent*> open;
  std::vector<Span> spans;
  for (const TimelineEvent& event : events) {
    if (event.kind == timeline::begin) open[program_of(event)] = &event;
    if (event.kind != timeline::end) continue;
    if (const auto found = open.find(program_of(event)); found != open.end())
      spans.push_back({found->second, event.time_ns});
  }
  std::ranges::stable_sort(spans, {}, [](const Span& span) { return span.begin->time_ns; });
  return spans;
}

/// Of each program the track.
std::map<ProgramKey, int> tracks_of(const std::vector<Span>& spans) {
  std::map<ProgramKey, int> tracks;
  std::vector<int64_t> free_from;
  for (const Span& span : spans) {
    auto track = std::ranges::find_if(free_from, [&](int64_t time) { return time <= span.begin->time_ns; });
    if (track == free_from.end()) track = free_from.insert(track, 0);
    *track = span.end_ns;
    tracks[program_of(*span.begin)] = static_cast<int>(track - free_from.begin());
  }
  return tracks;
}

class Writer {
 public:
  explicit Writer(std::span<const std::vector<TimelineEvent>> ranks) : ranks_(ranks) {
    for (const auto& events : ranks)
      for (const TimelineEvent& event : events) start_ns_ = std::min(start_ns_, event.time_ns);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (const TimelineEvent& event : ranks[rank])
        if (event.kind == timeline::publish)
          sent_.emplace(FlagKey{event.epoch, event.phase, rank, event.peer, event.chunk}, sent_.size());
  }

  Json write() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) write_rank(rank);
    return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(items_)}};
  }

 private:
  void write_rank(size_t rank) {
    items_.push_back(
        {{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    const std::vector<Span> spans = spans_of(ranks_[rank]);
    const auto tracks = tracks_of(spans);
    for (const Span& span : spans)
      add_span(rank, tracks.at(program_of(*span.begin)), span.begin->role, "program", *span.begin, span.end_ns);
    std::map<WaitKey, const TimelineEvent*> waits;
    for (const TimelineEvent& event : ranks_[rank]) {
      const auto track = tracks.find(program_of(event));
      if (track == tracks.end()) continue;
      if (event.kind == timeline::wait) waits[wait_of(event)] = &event;
      if (event.kind == timeline::publish) add_publish(rank, track->second, event);
      if (event.kind != timeline::arrive || !waits.contains(wait_of(event))) continue;
      const TimelineEvent& begin = *waits.at(wait_of(event));
      add_span(rank, track->second, fmt::format("wait for rank {}", event.peer), "wait", begin, event.time_ns);
      add_arrival(rank, track->second, event);
    }
  }

  Json item(const char* phase, size_t rank, int track, const std::string& name, const char* category,
            const TimelineEvent& event) const {
    Json args{{"epoch", event.epoch}, {"program", event.program}};
    if (event.peer >= 0) args.update({{"peer", event.peer}, {"phase", event.phase}, {"chunk", event.chunk}});
    return {{"ph", phase},
            {"pid", rank},
            {"tid", track},
            {"name", name},
            {"cat", category},
            {"ts", us(event.time_ns - start_ns_)},
            {"args", std::move(args)}};
  }

  void add_span(size_t rank, int track, const std::string& name, const char* category, const TimelineEvent& begin,
                int64_t end_ns) {
    items_.push_back(item("X", rank, track, name, category, begin));
    items_.back()["dur"] = us(end_ns - begin.time_ns);
  }

  void add_publish(size_t rank, int track, const TimelineEvent& event) {
    items_.push_back(item("i", rank, track, fmt::format("send to rank {}", event.peer), "publish", event));
    items_.back()["s"] = "t";
    items_.push_back(item("s", rank, track, "flag", "flag", event));
    items_.back()["id"] = sent_.at({event.epoch, event.phase, rank, static_cast<size_t>(event.peer), event.chunk});
  }

  void add_arrival(size_t rank, int track, const TimelineEvent& event) {
    const auto flag = sent_.find({event.epoch, event.phase, static_cast<size_t>(event.peer), rank, event.chunk});
    if (flag == sent_.end() || !arrived_.insert(flag->second).second) return;
    items_.push_back(item("f", rank, track, "flag", "flag", event));
    items_.back()["id"] = flag->second, items_.back()["bp"] = "e";
  }

  static double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

  std::span<const std::vector<TimelineEvent>> ranks_;
  int64_t start_ns_ = std::numeric_limits<int64_t>::max();
  std::map<FlagKey, size_t> sent_;  ///< the numbers of the arrows
  std::set<size_t> arrived_;
  Json items_ = Json::array();
};

}  // namespace

std::string chrome_trace(std::span<const std::vector<TimelineEvent>> ranks) { return Writer(ranks).write().dump(1); }

}  // namespace seqtile
