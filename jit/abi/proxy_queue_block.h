// jit/abi/proxy_queue_block.h -- the queue of chunks for other nodes, as a rank's kernels write it.
// SPDX-License-Identifier: Apache-2.0
//
// 64-bit words in the rank's memory: first the number of entries that were ever written, in a place as large as an
// entry, then the entries as a ring. The control block has their address (channel_block.h). An entry stands
// for a chunk that is published: rows in this rank's send buffer for the peer's staging, and the flag that follows the
// rows. Each flag of a peer, of either parity, has at most one entry under way: a ring with room for all of these
// overwrites nothing.
#pragma once
#include <cstdint>

namespace seqtile::proxy_queue {

enum EntryWord : int64_t {
  ready,  ///< the entry's number, from 1 on, stored last
  peer,
  data_offset,  ///< bytes from the begin of the staging to the first row
  rows,
  row_bytes,  ///< bytes of a row that this rank has written
  pitch,      ///< bytes from one row to the next
  flag_offset,
  flag,  ///< the value that is stored at flag_offset
  num_entry_words
};

}  // namespace seqtile::proxy_queue
