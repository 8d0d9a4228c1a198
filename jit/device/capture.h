// jit/device/capture.h -- records the launches of a function as a graph.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>

#include "seqtile/device.h"

namespace seqtile {

/// Records what `record` launches, copies and fills on the stream. Errors: as DeviceStreams::begin_capture and
/// end_capture, and the errors of `record`; the stream captures no more after any of them.
std::unique_ptr<Graph> capture(DeviceStreams& streams, Stream stream, const std::function<void()>& record);

}  // namespace seqtile
