// jit/fabric/core/protocol.cpp -- the table; see protocol.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/protocol.h"

#include "jit/base/forever.h"

namespace seqtile {
namespace {

constexpr auto write = ProtocolStep::Action::write, publish = ProtocolStep::Action::publish,
               await = ProtocolStep::Action::await, read = ProtocolStep::Action::read;

}  // namespace

const Protocol& gather_protocol() {
  static const Protocol& table =
      forever(Protocol{"gather", 1, {{"push", {{{write, 0}, {publish, 0}}}}, {"use", {{{await, 0}, {read, 0}}}}}});
  return table;
}

// To the model the one segment is a segment for each peer, all of them written before a flag is sent.
const Protocol& pulled_gather_protocol() {
  static const Protocol& table = forever(
      Protocol{"pulled gather", 1, {{"push", {{{write, 0}}, {{publish, 0}}}}, {"use", {{{await, 0}, {read, 0}}}}}});
  return table;
}

const Protocol& reduce_scatter_protocol() {
  static const Protocol& table = forever(
      Protocol{"reduce-scatter", 1, {{"produce", {{{write, 0}, {publish, 0}}}}, {"sum", {{{await, 0}}, {{read, 0}}}}}});
  return table;
}

const Protocol& two_shot_protocol() {
  static const Protocol& table = forever(Protocol{"two-shot",
                                                  2,
                                                  {{"produce", {{{write, 0}, {publish, 0}}}},
                                                   {"sum", {{{await, 0}}, {{read, 0}}, {{write, 1}, {publish, 1}}}},
                                                   {"use", {{{await, 1}, {read, 1}}}}}});
  return table;
}

const Protocol& gather_beside_reduce_scatter_protocol() {
  static const Protocol& table = forever(Protocol{"gather beside reduce-scatter",
                                                  2,
                                                  {{"push", {{{write, 0}, {publish, 0}}}},
                                                   {"produce", {{{write, 1}, {publish, 1}}}},
                                                   {"use", {{{await, 0}, {read, 0}}}},
                                                   {"sum", {{{await, 1}}, {{read, 1}}}}}});
  return table;
}

std::vector<const Protocol*> all_protocols() {
  return {&gather_protocol(), &pulled_gather_protocol(), &reduce_scatter_protocol(), &two_shot_protocol(),
          &gather_beside_reduce_scatter_protocol()};
}

}  // namespace seqtile
