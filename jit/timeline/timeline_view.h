// jit/timeline/timeline_view.h -- events of all ranks as a picture shows them: spans on tracks, and flags between them.
// SPDX-License-Identifier: Apache-2.0
//
// A program is a span on the first track of its rank that is free when it starts, so a rank has as many tracks as
// programs ran at once. A wait is a span inside its program's span. A flag goes from the program that sends it to the
// first wait that it ends.
#pragma once
#include <span>
#include <vector>

#include "seqtile/fabric.h"

namespace seqtile {

struct TimelineSpan {
  size_t rank;
  int track;
  bool is_wait;
  TimelineEvent begin;
  int64_t end_ns;
};

/// The sending or the arriving end of a flag.
struct TimelineFlag {
  size_t rank;
  int track;
  TimelineEvent event;
  size_t number;  ///< the same at both ends
};

struct TimelineView {
  int64_t start_ns = 0, end_ns = 0;
  std::vector<int> tracks;  ///< by rank: how many tracks it has
  std::vector<TimelineSpan> spans;
  std::vector<TimelineFlag> sent, arrived;
};

TimelineView view_of(std::span<const std::vector<TimelineEvent>> ranks);

}  // namespace seqtile
