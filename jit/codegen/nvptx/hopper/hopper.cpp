// jit/codegen/nvptx/hopper/hopper.cpp -- see hopper.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/hopper/hopper.h"

#include <algorithm>
#include <span>

#include "llvm/IR/IntrinsicsNVPTX.h"

#include <fmt/format.h>

namespace seqtile::nvptx::hopper {

using llvm::Value;

namespace {

void plain(Emitter& e, const char* text) { e.assembly(e.b.getVoidTy(), text, "~{memory}", {}); }

/// "{$0,$1,...}" of `count` operands from `first` on.
std::string operand_list(size_t first, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}${}", i ? "," : "", first + i);
  return "{" + text + "}";
}

std::string repeated(const std::string& constraint, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += constraint + ",";
  return text;
}

/// Constraints that put operand i into the register of result i.
std::string tied(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += std::to_string(i) + ",";
  return text;
}

llvm::Type* floats(Emitter& e, size_t count) {
  return llvm::StructType::get(e.context, std::vector<llvm::Type*>(count, e.b.getFloatTy()));
}

void extract(Emitter& e, Value* all, std::span<Value*> into) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = e.b.CreateExtractValue(all, static_cast<unsigned>(i));
}

}  // namespace

void init_barrier(Emitter& e, Value* barrier, int64_t arrivals) {
  e.assembly(e.b.getVoidTy(), "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", {barrier, e.i32(arrivals)});
}

void fence_barriers(Emitter& e) { plain(e, "fence.mbarrier_init.release.cluster;"); }

void await(Emitter& e, Value* barrier, Value* parity, bool of_cluster) {
  const std::string form = std::string("mbarrier.try_wait.parity.acquire.") + (of_cluster ? "cluster" : "cta");
  e.assembly(e.b.getVoidTy(), "{.reg .pred p; W${:uid}: " + form + ".shared::cta.b64 p, [$0], $1; @!p bra W${:uid};}",
             "r,r,~{memory}", {barrier, parity});
}

void expect(Emitter& e, Value* barrier, int64_t bytes) {
  e.assembly(e.b.getVoidTy(), "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}",
             {barrier, e.i32(bytes)});
}

void arrive(Emitter& e, Value* barrier) {
  e.assembly(e.b.getVoidTy(), "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];", "r,~{memory}", {barrier});
}

void copy_box(Emitter& e, Value* to, Value* map, const std::vector<Value*>& coordinates, Value* barrier) {
  const size_t rank = coordinates.size();
  std::vector<Value*> operands = {to, map, barrier};
  operands.insert(operands.end(), coordinates.begin(), coordinates.end());
  e.assembly(e.b.getVoidTy(),
             fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes "
                         "[$0], [$1, {}], [$2];",
                         rank, operand_list(3, rank)),
             "r,l,r," + repeated("r", rank) + "~{memory}", operands);
}

void copy_box_to_all(Emitter& e, Value* to, Value* map, const std::vector<Value*>& coordinates, Value* barrier,
                     int blocks) {
  const size_t rank = coordinates.size();
  std::vector<Value*> operands = {to, map, barrier, e.b.getInt16(static_cast<uint16_t>((1 << blocks) - 1))};
  operands.insert(operands.end(), coordinates.begin(), coordinates.end());
  e.assembly(e.b.getVoidTy(),
             fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [$0], [$1, {}], [$2], $3;",
                         rank, operand_list(4, rank)),
             "r,l,r,h," + repeated("r", rank) + "~{memory}", operands);
}

void store_box(Emitter& e, Value* from, Value* map, const std::vector<Value*>& coordinates) {
  const size_t rank = coordinates.size();
  std::vector<Value*> operands = {from, map};
  operands.insert(operands.end(), coordinates.begin(), coordinates.end());
  e.assembly(e.b.getVoidTy(),
             fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group [$1, {}], [$0];", rank,
                         operand_list(2, rank)),
             "r,l," + repeated("r", rank) + "~{memory}", operands);
}

void commit_stores(Emitter& e) { plain(e, "cp.async.bulk.commit_group;"); }

void store_matrices(Emitter& e, Value* row, const std::vector<Value*>& words) {
  std::vector<Value*> operands = {row};
  operands.insert(operands.end(), words.begin(), words.end());
  e.assembly(e.b.getVoidTy(), "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};", "r,r,r,r,r,~{memory}",
             operands);
}

void arrive_at(Emitter& e, Value* barrier, Value* rank) {
  e.assembly(e.b.getVoidTy(),
             "{.reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; "
             "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a];}",
             "r,r,~{memory}", {barrier, rank});
}

Value* cluster_rank(Emitter& e) {
  return e.b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_cluster_ctarank, {}, {});
}

void sync_cluster(Emitter& e) { plain(e, "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"); }

void fence_proxy(Emitter& e) { plain(e, "fence.proxy.async.shared::cta;"); }
void fence_wgmma(Emitter& e) { plain(e, "wgmma.fence.sync.aligned;"); }
void commit_wgmma(Emitter& e) { plain(e, "wgmma.commit_group.sync.aligned;"); }

void wait_wgmma(Emitter& e, int pending, std::vector<Value*>& sums, const std::vector<Value*>& kept) {
  // As many operands as one statement surely takes; the first one waits, the others only pin their registers.
  constexpr size_t kMost = 128;
  std::vector<Value*> inputs = kept;
  for (size_t first = 0; first < sums.size(); first += kMost) {
    const std::span<Value*> part(&sums[first], std::min(kMost, sums.size() - first));
    std::vector<Value*> operands(part.begin(), part.end());
    operands.insert(operands.end(), inputs.begin(), inputs.end());
    Value* all = e.assembly(
        floats(e, part.size()), first == 0 ? fmt::format("wgmma.wait_group.sync.aligned {};", pending) : "",
        repeated("=f", part.size()) + tied(part.size()) + repeated("r", inputs.size()) + "~{memory}", operands);
    extract(e, all, part);
    inputs.clear();
  }
}

void copy_sums(Emitter& e, std::vector<Value*>& sums) {
  std::string text;
  for (size_t i = 0; i < sums.size(); ++i) text += fmt::format("mov.f32 ${}, ${};\n", i, sums.size() + i);
  Value* all = e.assembly(floats(e, sums.size()), text,
                          repeated("=&f", sums.size()) + repeated("f", sums.size()) + "~{memory}", sums);
  extract(e, all, sums);
}

uint64_t descriptor_bits(int64_t leading_bytes, int64_t stride_bytes, int64_t panel_bytes) {
  const uint64_t swizzle = panel_bytes == 128 ? 1 : panel_bytes == 64 ? 2 : 3;
  return static_cast<uint64_t>(leading_bytes >> 4) << 16 | static_cast<uint64_t>(stride_bytes >> 4) << 32 |
         swizzle << 62;
}

void multiply(Emitter& e, const Wgmma& form, const std::vector<Value*>& a, Value* b, std::span<Value*> sums) {
  const size_t count = sums.size();
  const bool from_registers = a.size() > 1;
  const char* type = form.dtype == DType::bf16 ? "bf16" : "f16";
  // Results, then a, b, the flag, and the sums before: in the results' registers.
  const std::string a_text = from_registers ? operand_list(count, 4) : fmt::format("${}", count);
  const size_t after_a = count + a.size();
  const std::string text = fmt::format(
      "{{.reg .pred p; setp.ne.b32 p, ${}, 0; wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {}, {}, ${}, p, 1, 1{}, "
      "{};}}",
      after_a + 1, form.n, type, type, operand_list(0, count), a_text, after_a,
      from_registers      ? ""
      : form.a_is_m_major ? ", 1"
                          : ", 0",
      form.b_is_n_major ? 1 : 0);
  std::vector<Value*> operands = a;
  operands.push_back(b);
  operands.push_back(e.i32(form.is_first ? 0 : 1));
  if (!form.is_first) operands.insert(operands.end(), sums.begin(), sums.end());
  Value* all = e.assembly(floats(e, count), text,
                          repeated("=f", count) + (from_registers ? "r,r,r,r" : "l") + ",l,r," +
                              (form.is_first ? "" : tied(count)) + "~{memory}",
                          operands);
  extract(e, all, sums);
}

}  // namespace seqtile::nvptx::hopper
