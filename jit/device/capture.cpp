// jit/device/capture.cpp -- see capture.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device/capture.h"

#include "seqtile/error.h"

namespace seqtile {

std::unique_ptr<Graph> capture(DeviceStreams& streams, Stream stream, const std::function<void()>& record) {
  streams.begin_capture(stream);
  try {
    record();
  } catch (...) {
    try {
      streams.end_capture(stream);
    } catch (const Error&) {  // a capture that something has spoiled: what spoiled it is told
    }
    throw;
  }
  return streams.end_capture(stream);
}

}  // namespace seqtile
