// jit/timeline/timeline.cpp -- see seqtile/fabric.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/fabric.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "jit/abi/channel_block.h"
#include "jit/abi/timeline_events.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

constexpr size_t kEventBytes = timeline::num_event_words * sizeof(int64_t);

int64_t steady_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

size_t bytes_for(int64_t num_events) {
  if (num_events < 1)
    throw Error(ErrorCode::invalid_argument, fmt::format("a timeline of {} events; at least 1 is needed", num_events));
  return (static_cast<size_t>(num_events) + 1) * kEventBytes;
}

std::string role_name(int64_t word) {
  std::string name;
  for (auto rest = static_cast<uint64_t>(word); rest != 0; rest >>= 8) name += static_cast<char>(rest & 0xff);
  return name;
}

}  // namespace

Timeline::Timeline(Channel& channel, int64_t num_events)
    : channel_(channel), num_events_(num_events), buffer_(channel.fabric().device().memory(), bytes_for(num_events)) {
  channel.fabric().device().memory().fill(buffer_.data(), 0, buffer_.bytes());
  tell_kernels(reinterpret_cast<uint64_t>(buffer_.data()));
}

Timeline::~Timeline() {
  try {
    tell_kernels(0);
  } catch (const Error&) {  // the error of a launch is thrown where it is waited for
  }
}

void Timeline::tell_kernels(uint64_t address) {
  static_assert(channel::timeline == channel::clock_function + 1 &&
                channel::timeline_events == channel::clock_function + 2);
  const int64_t words[] = {static_cast<int64_t>(reinterpret_cast<intptr_t>(&steady_ns)), static_cast<int64_t>(address),
                           num_events_};
  Device& device = channel_.fabric().device();
  auto* block = static_cast<int64_t*>(channel_.tensors()[2].data);
  device.streams().synchronize({});
  device.memory().copy(block + channel::clock_function, words, sizeof words);
  device.streams().synchronize({});
}

std::vector<TimelineEvent> Timeline::events() const {
  std::vector<int64_t> words(buffer_.bytes() / sizeof(int64_t));
  Device& device = channel_.fabric().device();
  device.streams().synchronize({});
  device.memory().copy(words.data(), buffer_.data(), buffer_.bytes());
  device.streams().synchronize({});
  std::vector<TimelineEvent> events;
  const int64_t written = words[0];
  for (int64_t i = std::max<int64_t>(0, written - num_events_); i < written; ++i) {
    const int64_t* w = &words[static_cast<size_t>((1 + i % num_events_) * timeline::num_event_words)];
    events.push_back({w[timeline::time_ns], w[timeline::epoch], role_name(w[timeline::role]),
                      static_cast<timeline::Kind>(w[timeline::kind]), w[timeline::phase], w[timeline::peer],
                      w[timeline::chunk], w[timeline::program]});
  }
  return events;
}

}  // namespace seqtile
