// jit/base/outbox_block.h -- what a rank has for ranks of other nodes, as its kernels write it.
// SPDX-License-Identifier: Apache-2.0
//
// 64-bit words in the rank's memory: how many entries were ever written, in a place as large as an entry, then the
// entries, around. The control block has their address (jit/base/channel_block.h). An entry stands for a chunk that is
// published: rows in what mirrors the peer's staging here, and the flag that follows them. Each peer has at most one
// entry of each of its flags under way, of both parities: with room for those nothing is overwritten.
#pragma once
#include <cstdint>

namespace seqtile::outbox {

enum EntryWord : int64_t {
  ready,  ///< the entry's number, from 1 on, stored last
  peer,
  data_offset,  ///< of the first row, in bytes from the begin of the staging
  rows,
  row_bytes,  ///< of a row, as far as this rank has written it
  pitch,      ///< bytes from one row to the next
  flag_offset,
  flag,  ///< what is stored there
  num_entry_words
};

}  // namespace seqtile::outbox
