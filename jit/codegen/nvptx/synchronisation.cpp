// jit/codegen/nvptx/synchronisation.cpp -- atomics, flags and fences between programs.
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

}  // namespace

// What the block's first thread got, in all threads.
Value* Program::from_first_thread(DType dtype, const std::function<Value*()>& act) {
  Value* place = e_.scratch(dtype_bytes(dtype));
  e_.sync_before_scratch(true);  // what other threads have written is ordered before
  e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] { e_.store(dtype, place, {act()}, nullptr); });
  e_.sync();
  return e_.load(dtype, place, 1, nullptr, nullptr)[0];
}

void Program::lower_sync(const Op& op) {
  pin_loads_before(op);
  if (op.kind == OpKind::fence) {  // weaker ones came after these targets
    e_.sync();
    e_.assembly(e_.b.getVoidTy(), "fence.acq_rel." + scope_of(op) + ";", "~{memory}", {});
    e_.sync();
    return;
  }
  if (op.kind == OpKind::griddep) {
    // Before Hopper a grid starts when those before it have ended.
    const bool waits = op.string_attr("kind") == "wait";
    const char* text = waits ? "griddepcontrol.wait;" : "griddepcontrol.launch_dependents;";
    if (e_.is_hopper) e_.assembly(e_.b.getVoidTy(), text, "~{memory}", {});
    return;
  }
  if (op.kind == OpKind::await) return lower_await(op);
  if (op.kind == OpKind::clock) return lower_clock(op);
  const DType dtype = op.operands[0]->type.dtype;
  if (dtype_bytes(dtype) < 4 || dtype == DType::f64)
    fail(op, "of " + std::string(dtype_name(dtype)) + " has no lowering");
  Value* address = e_.address_of(element_address(op));
  Value* operand = scalars_.at(op.operands.back());
  llvm::Type* type = e_.type_of(dtype);
  const std::string c = constraint_of(dtype);
  const bool is_real = is_float(dtype);
  if (op.kind == OpKind::atomic_load) {
    order_access(op);
    const std::string text =
        "ld." + order_of(op, "acquire") + "." + scope_of(op) + ".global." + suffix_of(dtype, 'b') + " $0, [$1];";
    scalars_[op.results[0]] =
        from_first_thread(dtype, [&] { return e_.assembly(type, text, "=" + c + ",l,~{memory}", {address}); });
    return;
  }
  if (op.kind == OpKind::wait_ge) {
    order_access(op);
    const std::string bits = suffix_of(dtype, 's');
    const std::string text = "{.reg .pred p; .reg ." + bits + " v; W${:uid}: ld.acquire." + scope_of(op) + ".global." +
                             bits + " v, [$0]; setp.lt." + bits + " p, v, $1; @p bra W${:uid};}";
    e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] {
      e_.assembly(e_.b.getVoidTy(), text, "l," + c + ",~{memory}", {address, operand});
    });
    e_.sync();
    return;
  }
  if (op.kind == OpKind::signal) {
    const bool adds = op.string_attr("kind") == "add";
    const std::string text = (adds ? "red.release." + scope_of(op) + ".global.add." + suffix_of(dtype, 'u')
                                   : "st.release." + scope_of(op) + ".global." + suffix_of(dtype, 'b')) +
                             " [$0], $1;";
    e_.sync();
    order_access(op);
    e_.if_then(e_.b.CreateICmpEQ(e_.thread, e_.i32(0)), [&] {
      e_.assembly(e_.b.getVoidTy(), text, "l," + c + ",~{memory}", {address, operand});
    });
    return;
  }
  const std::string prefix = "atom." + order_of(op, "acq_rel") + "." + scope_of(op) + ".global.";
  std::vector<Value*> operands{address};
  std::string text, constraints = "=" + c + ",l,";
  if (op.kind == OpKind::cas) {
    text = prefix + "cas." + suffix_of(dtype, 'b') + " $0, [$1], $2, $3;";
    constraints += c + "," + c;
    operands.push_back(scalars_.at(op.operands[op.operands.size() - 2]));
  } else {
    const std::string kind(op.string_attr("kind"));
    const std::string name = kind == "exchange" ? "exch.b"
                             : kind == "add"    ? (is_real ? "add.f" : "add.u")
                                                : kind + ".s";
    if (is_real && kind != "add" && kind != "exchange")
      fail(op, kind + " of " + std::string(dtype_name(dtype)) + " has no lowering");
    text = prefix + name + std::to_string(dtype_bytes(dtype) * 8) + " $0, [$1], $2;";
    constraints += c;
  }
  operands.push_back(operand);
  scalars_[op.results[0]] =
      from_first_thread(dtype, [&] { return e_.assembly(type, text, constraints + ",~{memory}", operands); });
}

}  // namespace seqtile::nvptx
