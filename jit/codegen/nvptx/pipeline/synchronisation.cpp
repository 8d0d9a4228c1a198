// jit/codegen/nvptx/pipeline/synchronisation.cpp -- atomics, flags and fences between programs.
// SPDX-License-Identifier: Apache-2.0
//
// Orders and scopes are inline PTX throughout: LLVM 19 drops the order of an atomicrmw without a word. One thread acts
// for the block; barriers before and after carry its order to the other threads.
#include "jit/codegen/nvptx/program.h"

namespace seqtile::nvptx {

using ir::Op;
using ir::OpKind;
using llvm::Value;

namespace {

std::string scope_of(const Op& op) { return std::string(op.string_attr("scope", "gpu")); }

std::string order_of(const Op& op, const char* fallback) { return std::string(op.string_attr("order", fallback)); }

const char* constraint_of(DType dtype) { return dtype == DType::f32 ? "f" : dtype_bytes(dtype) == 4 ? "r" : "l"; }

std::string suffix_of(DType dtype, char letter) { return letter + std::to_string(dtype_bytes(dtype) * 8); }

std::string atom_of(const Op& op) { return "atom." + order_of(op, "acq_rel") + "." + scope_of(op) + ".global."; }

}  // namespace

// The result of `act`, which the block's first thread runs, in all threads.
Value* Program::from_first_thread(DType dtype, const std::function<Value*()>& act) {
  Value* place = e_.scratch(dtype_bytes(dtype));
  e_.sync_before_scratch(true);  // what other threads have written is ordered before
  e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] { e_.store(dtype, place, {act()}, nullptr); });
  e_.sync();
  return e_.load(dtype, place, 1, nullptr, nullptr)[0];
}

void Program::lower_sync(const Op& op) {
  pin_loads_before(op);
  switch (op.kind) {
    case OpKind::fence: return lower_fence(op);
    case OpKind::griddep: return lower_griddep(op);
    case OpKind::await: return lower_await(op);
    case OpKind::clock: return lower_clock(op);
    case OpKind::atomic_load: return lower_atomic_load(op);
    case OpKind::wait_ge: return lower_wait_ge(op);
    case OpKind::signal: return lower_signal(op);
    case OpKind::cas: return lower_cas(op);
    default: return lower_atomic(op);
  }
}

// Weaker fences came after these targets.
void Program::lower_fence(const Op& op) {
  e_.sync();
  e_.assembly(e_.b.getVoidTy(), "fence.acq_rel." + scope_of(op) + ";", "~{memory}", {});
  e_.sync();
}

// Before Hopper a grid starts when those before it have ended.
void Program::lower_griddep(const Op& op) {
  const bool waits = op.string_attr("kind") == "wait";
  const char* text = waits ? "griddepcontrol.wait;" : "griddepcontrol.launch_dependents;";
  if (e_.is_hopper) e_.assembly(e_.b.getVoidTy(), text, "~{memory}", {});
}

// The address of the element that `op` synchronises by.
Value* Program::flag_address(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  if (dtype_bytes(dtype) < 4 || dtype == DType::f64)
    fail(op, "of " + std::string(dtype_name(dtype)) + " has no lowering");
  return e_.address_of(element_address(op));
}

void Program::lower_atomic_load(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  Value* address = flag_address(op);
  order_access(op);
  const std::string constraints = "=" + std::string(constraint_of(dtype)) + ",l,~{memory}";
  const std::string text =
      "ld." + order_of(op, "acquire") + "." + scope_of(op) + ".global." + suffix_of(dtype, 'b') + " $0, [$1];";
  scalars_[op.results[0]] =
      from_first_thread(dtype, [&] { return e_.assembly(e_.type_of(dtype), text, constraints, {address}); });
}

void Program::lower_wait_ge(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  Value* address = flag_address(op);
  order_access(op);
  const std::string bits = suffix_of(dtype, 's');
  const std::string text = "{.reg .pred p; .reg ." + bits + " v; W${:uid}: ld.acquire." + scope_of(op) + ".global." +
                           bits + " v, [$0]; setp.lt." + bits + " p, v, $1; @p bra W${:uid};}";
  by_first_thread(dtype, text, address, scalars_.at(op.operands.back()));
  e_.sync();
}

void Program::lower_signal(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  Value* address = flag_address(op);
  const bool adds = op.string_attr("kind") == "add";
  const std::string text = (adds ? "red.release." + scope_of(op) + ".global.add." + suffix_of(dtype, 'u')
                                 : "st.release." + scope_of(op) + ".global." + suffix_of(dtype, 'b')) +
                           " [$0], $1;";
  e_.sync();
  order_access(op);
  by_first_thread(dtype, text, address, scalars_.at(op.operands.back()));
}

// Text without a result, of an address and a value.
void Program::by_first_thread(DType dtype, const std::string& text, Value* address, Value* value) {
  const std::string constraints = "l," + std::string(constraint_of(dtype)) + ",~{memory}";
  e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] {
    e_.assembly(e_.b.getVoidTy(), text, constraints, {address, value});
  });
}

void Program::lower_cas(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  Value* address = flag_address(op);
  const std::string c = constraint_of(dtype);
  const std::string text = atom_of(op) + "cas." + suffix_of(dtype, 'b') + " $0, [$1], $2, $3;";
  const std::vector<Value*> operands{address, scalars_.at(op.operands[op.operands.size() - 2]),
                                     scalars_.at(op.operands.back())};
  scalars_[op.results[0]] = from_first_thread(dtype, [&] {
    return e_.assembly(e_.type_of(dtype), text, "=" + c + ",l," + c + "," + c + ",~{memory}", operands);
  });
}

void Program::lower_atomic(const Op& op) {
  const DType dtype = op.operands[0]->type.dtype;
  const std::string kind(op.string_attr("kind")), c = constraint_of(dtype);
  Value* address = flag_address(op);
  const bool is_real = is_float(dtype);
  if (is_real && kind != "add" && kind != "exchange")
    fail(op, kind + " of " + std::string(dtype_name(dtype)) + " has no lowering");
  const std::string name = kind == "exchange" ? "exch.b" : kind == "add" ? (is_real ? "add.f" : "add.u") : kind + ".s";
  const std::string text = atom_of(op) + name + std::to_string(dtype_bytes(dtype) * 8) + " $0, [$1], $2;";
  Value* value = scalars_.at(op.operands.back());
  scalars_[op.results[0]] = from_first_thread(dtype, [&] {
    return e_.assembly(e_.type_of(dtype), text, "=" + c + ",l," + c + ",~{memory}", {address, value});
  });
}

}  // namespace seqtile::nvptx
