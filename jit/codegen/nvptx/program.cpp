// jit/codegen/nvptx/program.cpp -- parameters, blocks, scalars and views; see program.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/program.h"

#include "jit/codegen/nvptx/pipeline/overlap.h"

#include <algorithm>
#include <map>

#include "jit/codegen/dense_strides.h"
#include "jit/ir/length_sizes.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

constexpr int kDefaultWarps = 4;

int vector_elements(const ir::Function& function) {
  int64_t bytes = 4;
  for (const ir::Value* param : function.body().arguments)
    if (is_float(param->type.dtype)) bytes = std::min(bytes, dtype_bytes(param->type.dtype));
  return static_cast<int>(16 / bytes);
}

int warps_of(const ir::Function& function) {
  const int warps = schedule_of(function, "num_warps", kDefaultWarps);
  if (warps < 1 || warps > 32 || (warps & (warps - 1)) != 0)
    throw Error(ErrorCode::compile_failed,
                fmt::format("kernel {}: num_warps is {}; a block of threads has 1, 2, 4, 8, 16 or 32 warps",
                            function.name(), warps));
  return warps;
}

int ranks_in_launch(const ir::Function& function) { return schedule_of(function, "ranks_in_launch", 1); }

/// The sizes in the argument block that follow a length in device memory, by slot.
std::map<int, Value*> sizes_from_device(Emitter& e, const ir::Function& function) {
  std::map<int, Value*> sizes;
  const auto from_length = ir::length_sizes(function);
  if (!from_length || from_length->empty()) return sizes;
  // Without an address the length is longer than all sizes, so that they stay as they are.
  constexpr int64_t kLongest = int64_t{1} << 62;
  Value* address = e.parameter(ir::num_slots(function) - 1);
  Value* pointer = e.b.CreateIntToPtr(address, llvm::PointerType::get(e.context, kGlobalSpace));
  Value* length = e.load(DType::i64, pointer, 1, e.b.CreateICmpNE(address, e.i64(0)), e.i64(kLongest))[0];
  for (const ir::LengthSize& size : *from_length) {
    const auto slot = static_cast<int>(size.slot);
    Value* needed = e.b.CreateAdd(length, e.i64(size.plus));
    sizes[slot] = e.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, e.parameter(slot), needed);
  }
  return sizes;
}

}  // namespace

int schedule_of(const ir::Function& function, std::string_view name, int fallback) {
  const auto found = function.attributes.find(name);
  const auto* count = found == function.attributes.end() ? nullptr : std::get_if<int64_t>(&found->second);
  return count ? static_cast<int>(*count) : fallback;
}

Program::Program(llvm::Module& module, const Target& target, const ir::Function& function)
    : function_(function),
      users_(codegen::users_of(function)),
      tma_(plan_tma(function, target, users_, warps_of(function), schedule_of(function, "cluster", 1))),
      e_(module, target, function.name(),
         {ir::num_slots(function), is_persistent() ? 3 : 0, static_cast<int>(tma_.loop ? tma_.maps.size() : 0),
          warps_of(function), tma_.loop ? kGroupWarps : 0, ranks_in_launch(function)}),
      vector_(vector_elements(function)) {}

Program::~Program() = default;

void Program::fail(const Op& op, const std::string& why) const {
  throw Error(ErrorCode::compile_failed,
              fmt::format("kernel {}: operation {} {} on {}", function_.name(), op.info().name, why, e_.target.name));
}

void Program::lower() {
  if (ranks_in_launch(function_) > 1 && (tma_.loop || tma_.store || !is_in_order()))
    throw Error(
        ErrorCode::compile_failed,
        fmt::format("kernel {}: only programs that run in order, without TMA, can be those of several ranks in one "
                    "launch",
                    function_.name()));
  bind_parameters();
  note_positions(function_.body());
  plan_pipelines(function_.body());
  if (tma_.store) e_.scratch_is_stored(kPanelAlignment);
  if (tma_.loop) lower_specialised();
  else lower_portable();
  e_.b.CreateRetVoid();
  e_.finish_shared();
}

// A block's programs take turns where they must run in order; shared memory is free for the next one at the barrier.
void Program::lower_portable() {
  for_each_program(0, [&] {
    lower_block(function_.body());
    if (is_persistent()) e_.sync();
  });
}

bool Program::is_in_order() const { return schedule_of(function_, "in_order", 0) != 0; }
bool Program::is_persistent() const { return tma_.is_persistent || is_in_order(); }

GpuLaunch Program::launch() const {
  GpuLaunch launch;
  launch.threads = static_cast<uint32_t>((e_.num_warps + (tma_.loop ? kGroupWarps : 0)) * kLanes);
  launch.shared_bytes = static_cast<uint32_t>(e_.shared_bytes());
  launch.is_cooperative = is_cooperative_;
  launch.loop = tma_.loop ? "wgmma" : pipelines_.empty() ? "" : "portable: " + tma_.refusal;
  launch.is_persistent = is_persistent();
  launch.is_in_order = is_in_order();
  launch.ranks_in_launch = static_cast<uint32_t>(ranks_in_launch(function_));
  if (!tma_.loop) return launch;
  launch.tensor_maps = tma_.maps;
  launch.cluster[0] = static_cast<uint32_t>(tma_.cluster);
  return launch;
}

void Program::bind_parameters() {
  const std::map<int, Value*> from_device = sizes_from_device(e_, function_);
  int slot = 0;
  const auto next = [&]() -> Value* {
    const auto found = from_device.find(slot);
    Value* given = e_.parameter(slot++);
    return found == from_device.end() ? given : found->second;
  };
  for (const ir::Value* param : function_.body().arguments) {
    const ir::Type& type = param->type;
    if (!type.is_view()) {
      Value* bits = next();
      if (type.dtype == DType::f32)
        bits = e_.b.CreateBitCast(e_.b.CreateTrunc(bits, e_.b.getInt32Ty()), e_.b.getFloatTy());
      else if (is_float(type.dtype)) bits = e_.b.CreateBitCast(bits, e_.b.getDoubleTy());
      else bits = e_.b.CreateTrunc(bits, e_.type_of(type.dtype));
      scalars_[param] = bits;
      continue;
    }
    ViewRef view;
    view.base = e_.b.CreateIntToPtr(next(), llvm::PointerType::get(e_.context, kGlobalSpace));
    for (int d = 0; d < type.rank; ++d) {
      Value* size = next();
      view.sizes.push_back(type.shape[d] == ir::kDynamic ? size : e_.i64(type.shape[d]));
    }
    for (int d = 0; d < type.rank; ++d) {
      Value* stride = next();
      view.strides.push_back(d + 1 == type.rank && type.contiguous ? e_.i64(1) : stride);
    }
    views_[param] = std::move(view);
  }
}

void Program::note_positions(const ir::Block& block) {
  for (const Op* op : block.ops) {
    position_.emplace(op, static_cast<int>(position_.size()));
    is_cooperative_ |= op->kind == OpKind::wait_ge || op->kind == OpKind::await;
    for (const ir::Block* region : op->regions) note_positions(*region);
  }
}

void Program::lower_block(const ir::Block& block) {
  for (const Op* op : block.ops) {
    if (op->kind == OpKind::yield) continue;
    lower_op(*op);
    check_shared(*op);
  }
}

// Before LLVM runs: what does not fit would fail at the launch.
void Program::check_shared(const Op& op) const {
  if (e_.shared_bytes() <= e_.target.shared_bytes) return;
  throw Error(ErrorCode::compile_failed,
              fmt::format("kernel {}: operation {} needs {} B of shared memory, a block on {} has {} B; take smaller "
                          "tiles or fewer stages",
                          function_.name(), op.info().name, e_.shared_bytes(), e_.target.name, e_.target.shared_bytes));
}

void Program::lower_op(const Op& op) {
  const bool is_scalar = op.results.empty() || op.results[0]->type.is_scalar();
  switch (op.kind) {
    case OpKind::for_loop: return lower_for(op);
    case OpKind::if_then: return lower_if(op);
    case OpKind::while_loop: return lower_while(op);
    case OpKind::assume: return lower_assume(op);
    case OpKind::slice:
    case OpKind::at:
    case OpKind::view_at: return lower_view(op);
    case OpKind::load:
    case OpKind::gather:
      if (!in_shared(op.results[0])) open_loads_.push_back(&op);
      return;
    case OpKind::store:
    case OpKind::store_add: return &op == tma_.store ? store_by_tma(op) : store(op);
    case OpKind::scatter: return scatter(op);
    case OpKind::load_scalar:
    case OpKind::store_scalar: return lower_element(op);
    case OpKind::atomic:
    case OpKind::atomic_load:
    case OpKind::cas:
    case OpKind::await:
    case OpKind::clock:
    case OpKind::wait_ge:
    case OpKind::signal:
    case OpKind::fence:
    case OpKind::griddep: return lower_sync(op);
    case OpKind::reduce:
    case OpKind::argreduce: return lower_reduce(op);
    case OpKind::scan: return lower_scan(op);
    case OpKind::dot: return lower_dot(op);
    case OpKind::prefetch: return prefetch(op);
    case OpKind::assert_true:
    case OpKind::print: return;  // for the interpreter
    default: break;
  }
  if (op.kind == OpKind::select && op.results[0]->type.is_view()) return lower_view(op);
  if (is_scalar) return lower_scalar(op);
  if (op.info().effects != ir::OpEffects::pure) fail(op, "has no lowering");
}

void Program::lower_scalar(const Op& op) {
  if (op.results.empty()) fail(op, "has no lowering");
  const ir::Value* result = op.results[0];
  const auto axis = static_cast<int>(op.int_attr("axis"));
  switch (op.kind) {
    case OpKind::program_id: scalars_[result] = e_.program_id(axis); return;
    case OpKind::num_programs: scalars_[result] = e_.num_programs(axis); return;
    case OpKind::size: scalars_[result] = views_.at(op.operands[0]).sizes[static_cast<size_t>(axis)]; return;
    case OpKind::address:
      scalars_[result] = e_.b.CreatePtrToInt(views_.at(op.operands[0]).base, e_.b.getInt64Ty());
      return;
    case OpKind::constant:
      scalars_[result] = is_float(result->type.dtype)
                             ? llvm::ConstantFP::get(e_.type_of(result->type.dtype), op.float_attr("value"))
                             : static_cast<Value*>(llvm::ConstantInt::get(
                                   e_.type_of(result->type.dtype), static_cast<uint64_t>(op.int_attr("value")), true));
      return;
    default: break;
  }
  std::vector<Value*> operands;
  for (const ir::Value* operand : op.operands) operands.push_back(scalars_.at(operand));
  scalars_[result] = arithmetic(op, operands);
}

void Program::lower_view(const Op& op) {
  if (op.kind == OpKind::select) {
    const ViewRef &a = views_.at(op.operands[1]), &b = views_.at(op.operands[2]);
    Value* condition = scalars_.at(op.operands[0]);
    ViewRef view{e_.b.CreateSelect(condition, a.base, b.base), {}, {}};
    for (size_t d = 0; d < a.sizes.size(); ++d) {
      view.sizes.push_back(e_.b.CreateSelect(condition, a.sizes[d], b.sizes[d]));
      view.strides.push_back(e_.b.CreateSelect(condition, a.strides[d], b.strides[d]));
    }
    views_[op.results[0]] = std::move(view);
    return;
  }
  if (op.kind == OpKind::view_at) {
    ViewRef view;
    view.base = e_.b.CreateIntToPtr(scalars_.at(op.operands[0]), llvm::PointerType::get(e_.context, kGlobalSpace));
    for (size_t d = 1; d < op.operands.size(); ++d) view.sizes.push_back(scalars_.at(op.operands[d]));
    view.strides = codegen::dense_strides(e_.b, view.sizes);
    views_[op.results[0]] = std::move(view);
    return;
  }
  const ir::Value* source = op.operands[0];
  ViewRef view = views_.at(source);
  const DType dtype = source->type.dtype;
  if (op.kind == OpKind::at) {
    const auto axis = static_cast<size_t>(op.int_attr("axis"));
    view.base = e_.element_pointer(view.base, e_.b.CreateMul(scalars_.at(op.operands[1]), view.strides[axis]), dtype);
    view.sizes.erase(view.sizes.begin() + static_cast<std::ptrdiff_t>(axis));
    view.strides.erase(view.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  } else {
    const auto rank = static_cast<size_t>(source->type.rank);
    for (size_t d = 0; d < rank; ++d) {
      Value* offset = scalars_.at(op.operands[1 + d]);
      view.base = e_.element_pointer(view.base, e_.b.CreateMul(offset, view.strides[d]), dtype);
      view.sizes[d] = scalars_.at(op.operands[1 + rank + d]);
    }
  }
  views_[op.results[0]] = std::move(view);
}

void Program::lower_assume(const Op& op) { e_.b.CreateAssumption(scalars_.at(op.operands[0])); }

}  // namespace seqtile::nvptx
