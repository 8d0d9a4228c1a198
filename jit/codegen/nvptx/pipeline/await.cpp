// jit/codegen/nvptx/pipeline/await.cpp -- waiting for another rank's flag.
// SPDX-License-Identifier: Apache-2.0
//
// One thread polls with acquire order at system scope; the barrier behind it hands that order to the block. Now and
// then it looks at the rank's abort word, which any peer may set, and at the clock. The tail of
// docs/seqpar/protocol.md says why each of these orders and scopes is needed.
#include "jit/abi/channel_block.h"
#include "jit/codegen/nvptx/program.h"
#include "seqtile/abi.h"

namespace seqtile::nvptx {

using ir::Op;
using llvm::Value;

namespace {

constexpr int64_t kLookEvery = 8;  ///< polls
constexpr int64_t kUndecided = -1;

/// A word of the channel's control block, which only the host and this device's kernels write.
Value* block_word(Emitter& e, Value* block, Value* index) {
  return e.load(DType::i64, e.element_pointer(block, index, DType::i64), 1, nullptr, nullptr)[0];
}

Value* clock_ns(Emitter& e) { return e.assembly(e.b.getInt64Ty(), "mov.u64 $0, %globaltimer;", "=l,~{memory}", {}); }

Value* polled(Emitter& e, const char* order, Value* address) {
  return e.assembly(e.b.getInt64Ty(), std::string("ld.") + order + ".sys.global.u64 $0, [$1];", "=l,l,~{memory}",
                    {address});
}

}  // namespace

void Program::lower_clock(const Op& op) { scalars_[op.results[0]] = clock_ns(e_); }

void Program::lower_await(const Op& op) {
  order_access(op);
  const ViewRef& block = views_.at(op.operands.back());
  Value* flag = e_.address_of(element_address(op));
  Value* expected = scalars_.at(op.operands[op.operands.size() - 2]);
  const auto outcome = [&](int64_t value) { return e_.i64(value); };
  scalars_[op.results[0]] = from_first_thread(DType::i64, [&] {
    Value* rank = block_word(e_, block.base, e_.i64(channel::rank));
    Value* peer = e_.b.CreateAdd(e_.b.CreateMul(rank, e_.i64(channel::num_peer_words)),
                                 e_.i64(int64_t{channel::peers} + int64_t{channel::abort_address}));
    Value* abort = block_word(e_, block.base, peer);
    Value* limit = block_word(e_, block.base, e_.i64(channel::timeout_ns));
    Value* start = clock_ns(e_);
    Value *polls = nullptr, *state = nullptr;
    e_.loop_while(
        {e_.i64(0), outcome(kUndecided)},
        [&](const std::vector<Value*>& carried) {
          polls = carried[0];
          Value* seen = polled(e_, "acquire", flag);
          Value* same_epoch =
              e_.b.CreateICmpULT(e_.b.CreateXor(seen, expected), e_.i64(int64_t{1} << channel::kHashBits));
          Value* decided = e_.b.CreateSelect(same_epoch, outcome(channel::mismatch), carried[1]);
          state = e_.b.CreateSelect(e_.b.CreateICmpEQ(seen, expected), outcome(channel::arrived), decided);
          return e_.b.CreateICmpSLT(state, e_.i64(0));
        },
        [&]() -> std::vector<Value*> {
          e_.assembly(e_.b.getVoidTy(), "nanosleep.u32 64;", "~{memory}", {});
          Value* next = e_.b.CreateAdd(polls, e_.i64(1));
          Value* looks = e_.b.CreateICmpEQ(e_.b.CreateURem(next, e_.i64(kLookEvery)), e_.i64(0));
          const auto found =
              e_.choose(looks,
                        [&]() -> std::vector<Value*> {
                          Value* is_late = e_.b.CreateICmpUGT(e_.b.CreateSub(clock_ns(e_), start), limit);
                          Value* late = e_.b.CreateSelect(is_late, outcome(channel::timed_out), outcome(kUndecided));
                          Value* is_aborted = e_.b.CreateICmpNE(polled(e_, "relaxed", abort), e_.i64(0));
                          return {e_.b.CreateSelect(is_aborted, outcome(channel::aborted), late)};
                        },
                        {outcome(kUndecided)});
          return {next, found[0]};
        });
    return state;
  });
}

}  // namespace seqtile::nvptx
