// jit/fabric/timeline_view.h -- events of all ranks as what a picture shows: spans on tracks, and flags between them.
// SPDX-License-Identifier: Apache-2.0
//
// A program is a span on the first track of its rank that is free when it starts, so a rank has as many tracks as
// programs ran at once; what it waits for are spans inside. A flag goes from where it is sent to the first wait that it
// ends.
#pragma once
#include <span>
#include <vector>

#include "jit/timeline.h"

namespace seqtile {

struct TimelineSpan {
  size_t rank;
  int track;
  bool is_wait;
  TimelineEvent begin;
  int64_t end_ns;
};

/// One end of a flag's way.
struct TimelineFlag {
  size_t rank;
  int track;
  TimelineEvent event;
  size_t number;  ///< the same at both ends
};

struct TimelineView {
  int64_t start_ns = 0, end_ns = 0;
  std::vector<int> tracks;  ///< of each rank
  std::vector<TimelineSpan> spans;
  std::vector<TimelineFlag> sent, arrived;
};

TimelineView view_of(std::span<const std::vector<TimelineEvent>> ranks);

}  // namespace seqtile
