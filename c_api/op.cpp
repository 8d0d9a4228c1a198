// c_api/op.cpp -- seqtile.h: calls of a prepared operation, and what is known of it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "c_api/objects.h"
#include "c_api/status.h"
#include "c_api/tensors.h"
#include "seqtile/operation.h"

namespace seqtile::c_api {
namespace {

using Json = nlohmann::ordered_json;
using kernels::seqpar::RankHandle;

int64_t length_of(const OpParts& op, std::span<const Tensor> tensors, int64_t length) {
  if (length < SEQTILE_LENGTH_OF_TENSORS)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("length is {}; give 0 or more, or SEQTILE_LENGTH_OF_TENSORS (-1)", length));
  if (length != SEQTILE_LENGTH_OF_TENSORS) return length;
  if (!op.length)
    throw Error(ErrorCode::invalid_argument, "no tensor of the operation shows the length; give it to the call");
  const Tensor& tensor = tensors[op.length->tensor];
  const auto dim = static_cast<int>(op.length->dim);
  return tensor.rank > dim ? tensor.sizes[op.length->dim] - op.length->less : 1;  // the handle refuses the rank
}

void call(const OpParts& op, std::span<const DLTensor* const> given, int64_t length, Stream stream) {
  kernels::Call call(0);
  name_errors(op.plain().operation().name, [&] {
    add_tensors(given, op.args, op.gpu, call);
    call.length = length_of(op, call.tensors(), length);
  });
  if (const auto* handle = std::get_if<Handle>(&op.handle)) return (*handle)(call.tensors(), call.length, {}, stream);
  const auto& fused = std::get<RankHandle>(op.handle);
  fused.set_length(call, call.length);
  fused(call, stream);
}

const char* role_name(autotune::ArgRole role) {
  switch (role) {
    case autotune::ArgRole::input: return "input";
    case autotune::ArgRole::weight: return "weight";
    case autotune::ArgRole::output: return "output";
  }
  return "unknown";
}

/// 4096, "length", "batch + 1".
Json json_of(const autotune::Dim& dim) {
  if (dim.symbol.empty()) return dim.size;
  if (dim.size == 0) return dim.symbol;
  return fmt::format("{} {} {}", dim.symbol, dim.size < 0 ? '-' : '+', std::abs(dim.size));
}

Json json_of(const autotune::ArgSpec& arg) {
  Json shape = Json::array();
  for (const autotune::Dim& dim : arg.dims) shape.push_back(json_of(dim));
  Json json{{"name", arg.name}, {"role", role_name(arg.role)}, {"dtype", dtype_name(arg.dtype)}};
  json["shape"] = std::move(shape);
  if (!arg.in_place.empty()) json["in_place"] = arg.in_place;
  return json;
}

Json json_of(const OpParts& op) {
  const autotune::Workload& workload = op.plain().workload();
  Json tensors = Json::array();
  for (const autotune::ArgSpec& arg : op.args) tensors.push_back(json_of(arg));
  return {{"operation", workload.operation},
          {"dtype", dtype_name(workload.dtype)},
          {"fields", Json::parse(workload.fields.json())},
          {"tensors", std::move(tensors)}};
}

Json json_of(const Explanation& found) {
  return {{"bucket", {found.bucket.lo, found.bucket.hi}},
          {"origin", found.origin},
          {"config", Json::parse(found.config.json())},
          {"median_us", found.median_us},
          {"reason", found.reason}};
}

}  // namespace
}  // namespace seqtile::c_api

using namespace seqtile;
using c_api::guarded;
using c_api::required;

seqtile_status seqtile_op_call(const seqtile_op* op, const DLTensor* const* tensors, int32_t num_tensors,
                               int64_t length, void* stream) {
  return guarded([&] {
    if (num_tensors < 0)
      throw Error(ErrorCode::invalid_argument, fmt::format("num_tensors is {}; give 0 or more", num_tensors));
    if (num_tensors > 0) required(tensors, "tensors");
    c_api::call(required(op, "op").it, {tensors, static_cast<size_t>(num_tensors)}, length, Stream{stream});
  });
}

seqtile_status seqtile_op_describe(const seqtile_op* op, char** json) {
  return guarded([&] {
    required(json, "json") = nullptr;
    *json = c_api::new_text(
        c_api::json_of(required(op, "op").it).dump(-1, ' ', false, c_api::Json::error_handler_t::replace));
  });
}

seqtile_status seqtile_op_explain(const seqtile_op* op, int64_t length, char** json) {
  return guarded([&] {
    required(json, "json") = nullptr;
    *json = c_api::new_text(c_api::json_of(required(op, "op").it.plain().explain(length))
                                .dump(-1, ' ', false, c_api::Json::error_handler_t::replace));
  });
}

void seqtile_op_retain(seqtile_op* op) { c_api::retain(op); }
void seqtile_op_release(seqtile_op* op) { c_api::release(op); }
