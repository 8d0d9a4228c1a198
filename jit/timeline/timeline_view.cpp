// jit/timeline/timeline_view.cpp -- see timeline_view.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/timeline/timeline_view.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace seqtile {
namespace {

using ProgramKey = std::pair<int64_t, int64_t>;                           // epoch, program
using WaitKey = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;  // and phase, peer, chunk
using FlagKey = std::tuple<int64_t, int64_t, size_t, size_t, int64_t>;    // epoch, phase, from, to, chunk

ProgramKey program_of(const TimelineEvent& e) { return {e.epoch, e.program}; }
WaitKey wait_of(const TimelineEvent& e) { return {e.epoch, e.program, e.phase, e.peer, e.chunk}; }

/// Programs that have both a begin and an end, in the order of their begins; on no track yet.
std::vector<TimelineSpan> programs_of(size_t rank, const std::vector<TimelineEvent>& events) {
  std::map<ProgramKey, const TimelineEvent*> open;
  std::vector<TimelineSpan> spans;
  for (const TimelineEvent& event : events) {
    if (event.kind == timeline::begin) open[program_of(event)] = &event;
    if (event.kind != timeline::end) continue;
    if (const auto found = open.find(program_of(event)); found != open.end())
      spans.push_back({rank, 0, false, *found->second, event.time_ns});
  }
  std::ranges::stable_sort(spans, {}, [](const TimelineSpan& span) { return span.begin.time_ns; });
  return spans;
}

/// Puts the programs on tracks; of each program the track.
std::map<ProgramKey, int> lay_out(std::vector<TimelineSpan>& spans) {
  std::map<ProgramKey, int> tracks;
  std::vector<int64_t> free_from;
  for (TimelineSpan& span : spans) {
    auto track = std::ranges::find_if(free_from, [&](int64_t time) { return time <= span.begin.time_ns; });
    if (track == free_from.end()) track = free_from.insert(track, 0);
    *track = span.end_ns;
    span.track = static_cast<int>(track - free_from.begin());
    tracks[program_of(span.begin)] = span.track;
  }
  return tracks;
}

class Viewer {
 public:
  explicit Viewer(std::span<const std::vector<TimelineEvent>> ranks) {
    view_.start_ns = std::numeric_limits<int64_t>::max();
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (const TimelineEvent& event : ranks[rank]) {
        view_.start_ns = std::min(view_.start_ns, event.time_ns);
        view_.end_ns = std::max(view_.end_ns, event.time_ns);
        if (event.kind == timeline::publish)
          sent_.emplace(FlagKey{event.epoch, event.phase, rank, event.peer, event.chunk}, sent_.size());
      }
    for (size_t rank = 0; rank < ranks.size(); ++rank) add_rank(rank, ranks[rank]);
    std::set<size_t> shown;  // of a program whose begin the ring has lost nothing is shown
    for (const TimelineFlag& flag : view_.sent) shown.insert(flag.number);
    std::erase_if(view_.arrived, [&](const TimelineFlag& flag) { return !shown.contains(flag.number); });
  }
  TimelineView take() { return std::move(view_); }

 private:
  void add_rank(size_t rank, const std::vector<TimelineEvent>& events) {
    std::vector<TimelineSpan> programs = programs_of(rank, events);
    const auto tracks = lay_out(programs);
    int most = 0;
    for (const TimelineSpan& span : programs) most = std::max(most, span.track + 1);
    view_.tracks.push_back(most);
    view_.spans.insert(view_.spans.end(), programs.begin(), programs.end());
    std::map<WaitKey, const TimelineEvent*> waits;
    for (const TimelineEvent& event : events) {
      const auto track = tracks.find(program_of(event));
      if (track == tracks.end()) continue;
      if (event.kind == timeline::wait) waits[wait_of(event)] = &event;
      if (event.kind == timeline::publish)
        view_.sent.push_back(
            {rank, track->second, event,
             sent_.at({event.epoch, event.phase, rank, static_cast<size_t>(event.peer), event.chunk})});
      if (event.kind != timeline::arrive || !waits.contains(wait_of(event))) continue;
      view_.spans.push_back({rank, track->second, true, *waits.at(wait_of(event)), event.time_ns});
      add_arrival(rank, track->second, event);
    }
  }

  void add_arrival(size_t rank, int track, const TimelineEvent& event) {
    const auto flag = sent_.find({event.epoch, event.phase, static_cast<size_t>(event.peer), rank, event.chunk});
    if (flag != sent_.end() && arrived_.insert(flag->second).second)
      view_.arrived.push_back({rank, track, event, flag->second});
  }

  TimelineView view_;
  std::map<FlagKey, size_t> sent_;
  std::set<size_t> arrived_;
};

}  // namespace

TimelineView view_of(std::span<const std::vector<TimelineEvent>> ranks) { return Viewer(ranks).take(); }

}  // namespace seqtile
