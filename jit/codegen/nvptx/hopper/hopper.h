// jit/codegen/nvptx/hopper/hopper.h -- sm_90a's asynchronous instructions: barriers in shared memory, TMA copies,
// wgmma.
// SPDX-License-Identifier: Apache-2.0
//
// The text of each instruction is here and nowhere else; LLVM 19 has intrinsics for few of them. Shared addresses are
// i32, tensor maps generic pointers.
#pragma once
#include <span>

#include "jit/codegen/nvptx/emitter.h"

namespace seqtile::nvptx::hopper {

void init_barrier(Emitter& e, llvm::Value* barrier, int64_t arrivals);
/// Makes the initialised barriers visible to the asynchronous proxy and the cluster.
void fence_barriers(Emitter& e);
/// Waits for the end of the phase with this parity (i32); `of_cluster`: other blocks arrive too.
void await(Emitter& e, llvm::Value* barrier, llvm::Value* parity, bool of_cluster);
/// One arrival that also announces `bytes` of copies.
void expect(Emitter& e, llvm::Value* barrier, int64_t bytes);
void arrive(Emitter& e, llvm::Value* barrier);
/// Copies the box at `coordinates` (i32, innermost first) to `to`; elements outside of the tensor become zero.
void copy_box(Emitter& e, llvm::Value* to, llvm::Value* map, const std::vector<llvm::Value*>& coordinates,
              llvm::Value* barrier);
/// copy_box() to the same place and barrier of every block of a cluster of `blocks`.
void copy_box_to_all(Emitter& e, llvm::Value* to, llvm::Value* map, const std::vector<llvm::Value*>& coordinates,
                     llvm::Value* barrier, int blocks);
/// Copies from shared memory to the box at `coordinates`. All copies since the last commit are one group.
void store_box(Emitter& e, llvm::Value* from, llvm::Value* map, const std::vector<llvm::Value*>& coordinates);
void commit_stores(Emitter& e);
/// Four 8 x 8 matrices of 16 bits; lane i gives the shared address of row i % 8 of matrix i / 8.
void store_matrices(Emitter& e, llvm::Value* row, const std::vector<llvm::Value*>& words);
/// Arrives at the barrier that lies at the same place in block `rank` (i32) of the cluster.
void arrive_at(Emitter& e, llvm::Value* barrier, llvm::Value* rank);
/// Number of the block in its cluster, i32.
llvm::Value* cluster_rank(Emitter& e);
/// A barrier of all threads of the cluster that have not ended. It orders their earlier accesses to shared memory
/// before later ones.
void sync_cluster(Emitter& e);
/// Makes this thread's writes to shared memory visible to wgmma and TMA.
void fence_proxy(Emitter& e);

/// Needed before the first wgmma of a batch, and wherever registers that a wgmma takes were written.
void fence_wgmma(Emitter& e);
void commit_wgmma(Emitter& e);
/// Waits until at most `pending` batches are in flight. `sums` are replaced by their values after the wait; `kept` stay
/// in their registers until then.
void wait_wgmma(Emitter& e, int pending, std::vector<llvm::Value*>& sums, const std::vector<llvm::Value*>& kept = {});

/// Copies sums into registers of their own. If a branch writes to sums that have been waited for, ptxas would otherwise
/// see a conflict with the product that is still in flight, and serialise both (C7515).
void copy_sums(Emitter& e, std::vector<llvm::Value*>& sums);

/// The part of a matrix descriptor that does not depend on the address.
uint64_t descriptor_bits(int64_t leading_bytes, int64_t stride_bytes, int64_t panel_bytes);
/// sums [64, n] (+)= a b for 16 of k. `a` is one descriptor (i64), or four words of registers.
struct Wgmma {
  DType dtype;
  int64_t n;
  bool is_first;      ///< the sums start from zero; `sums` are results only
  bool b_is_n_major;  ///< b lies as rows of k
  bool a_is_m_major;  ///< a lies as rows of k; not from registers
};
void multiply(Emitter& e, const Wgmma& form, const std::vector<llvm::Value*>& a, llvm::Value* b,
              std::span<llvm::Value*> sums);

}  // namespace seqtile::nvptx::hopper
