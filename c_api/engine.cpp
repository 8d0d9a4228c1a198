// c_api/engine.cpp -- seqtile.h: engines, and operations that they prepare.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "c_api/objects.h"
#include "c_api/options.h"
#include "c_api/status.h"
#include "seqtile/operations.h"

namespace seqtile::c_api {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const EngineCounters& c) {
  return {{"hits", c.hits},
          {"launches", c.launches},
          {"misses_no_record", c.misses_no_record},
          {"misses_above_top", c.misses_above_top},
          {"compiles", c.compiles},
          {"compiles_at_load", c.compiles_at_load},
          {"tunings", c.tunings},
          {"bad_rows", c.bad_rows},
          {"bad_files", c.bad_files},
          {"busy", c.busy}};
}

Json json_of(const autotune::OpDef& op) {
  Json fields = Json::array();
  for (const autotune::FieldInfo& field : op.fields ? op.fields() : std::vector<autotune::FieldInfo>{}) {
    Json one{{"field", field.name}, {"values", field.values}};
    if (!field.fallback.empty()) one["default"] = field.fallback;
    if (field.is_required) one["required"] = true;
    fields.push_back(std::move(one));
  }
  return {
      {"operation", op.name}, {"summary", op.summary}, {"over_ranks", bool(op.on_rank)}, {"fields", std::move(fields)}};
}

std::optional<LengthPlace> length_place(std::span<const autotune::ArgSpec> args) {
  for (size_t i = 0; i < args.size(); ++i)
    for (size_t d = 0; d < args[i].dims.size(); ++d)
      if (args[i].dims[d].symbol == "length") return LengthPlace{i, d, args[i].dims[d].size};
  return std::nullopt;
}

OpParts op_parts(const EngineParts& engine, std::optional<ChannelParts> channel,
                 std::variant<Handle, kernels::seqpar::RankHandle> handle) {
  OpParts parts{engine, std::move(channel), std::move(handle), {}, {}, engine.gpu};
  parts.args = parts.plain().schema().args;
  if (const auto* fused = std::get_if<kernels::seqpar::RankHandle>(&parts.handle))
    parts.args = parts.args.first(fused->num_tensors());
  parts.length = length_place(parts.args);
  return parts;
}

/// Errors: invalid_argument where the operation is to be prepared by the other function.
void check_kind(const autotune::OpDef& op, bool is_on_channel) {
  if (bool(op.on_rank) == is_on_channel) return;
  throw Error(ErrorCode::invalid_argument,
              op.name + (is_on_channel ? " is no operation over ranks; prepare it by seqtile_engine_prepare()"
                                       : " is an operation over ranks; prepare it by seqtile_engine_prepare_on()"));
}

const autotune::Registry& registry() {
  static const autotune::Registry& only = *new autotune::Registry(kernels::make_registry());  // NOLINT: for ever
  return only;
}

/// The GPU that "cuda" or "cuda:N" names. The device is open: its name is a good one.
int gpu_of(const std::string& device) {
  if (device == "cpu") return kHost;
  if (!device.starts_with("cuda")) return kNoGpu;
  const size_t colon = device.find(':');
  return colon == std::string::npos ? 0 : std::stoi(device.substr(colon + 1));
}

EngineParts opened(Options options) {
  EngineParts parts;
  const bool is_cpu = options.engine.device == "cpu";
  if (options.pool == Pool::openmp || (options.pool == Pool::automatic && is_cpu && has_openmp())) {
    parts.executor = make_openmp_executor(options.engine.threads);
    options.engine.executor = parts.executor.get();
    options.engine.threads = 0;  // the executor's
  }
  parts.engine = Engine::open(options.engine, registry());
  parts.gpu = gpu_of(options.engine.device);
  return parts;
}

EngineParts opened_on(Options options, const seqtile_fabric& fabric) {
  if (options.engine.threads != 0 && options.engine.threads != fabric.threads)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("threads is {}, the fabric's rank has {}; leave the option out", options.engine.threads,
                            fabric.threads));
  options.engine.threads = fabric.threads;
  return {fabric.it, nullptr, Engine::open(options.engine, registry(), *fabric.it), kHost};
}

OpParts prepared(const EngineParts& parts, const char* operation, const char* fields_json) {
  const autotune::Workload workload = read_workload(&required(operation, "operation"), fields_json);
  check_kind(registry().find(workload.operation), false);
  return op_parts(parts, std::nullopt, parts.engine->prepare(workload));
}

OpParts prepared_on(const EngineParts& parts, const char* operation, const char* fields_json,
                    const ChannelParts& channel) {
  if (parts.fabric != channel.fabric)
    throw Error(ErrorCode::invalid_argument,
                "the engine is not open on the channel's fabric; open it by seqtile_engine_open_on()");
  autotune::Workload workload = read_workload(&required(operation, "operation"), fields_json);
  const autotune::OpDef& op = registry().find(workload.operation);
  check_kind(op, true);
  const Fabric& fabric = *channel.fabric;
  if (!workload.fields.contains("world_size")) workload.fields.set("world_size", int64_t{fabric.world_size()});
  if (!workload.fields.contains("fabric")) workload.fields.set("fabric", fabric.kind());
  return op_parts(parts, channel, kernels::seqpar::RankHandle(*parts.engine, workload, op.shares, *channel.channel));
}

}  // namespace
}  // namespace seqtile::c_api

using namespace seqtile;
using c_api::guarded;
using c_api::required;

seqtile_status seqtile_operations(char** json) {
  return guarded([&] {
    required(json, "json") = nullptr;
    c_api::Json all = c_api::Json::array();
    for (const auto& op : c_api::registry().ops()) all.push_back(c_api::json_of(*op));
    *json = c_api::new_text(all.dump(-1, ' ', false, c_api::Json::error_handler_t::replace));
  });
}

seqtile_status seqtile_engine_open(const char* options_json, seqtile_engine** engine) {
  return guarded(
      [&] { c_api::give(engine, "engine", [&] { return c_api::opened(c_api::read_options(options_json, true)); }); });
}

seqtile_status seqtile_engine_open_on(const char* options_json, seqtile_fabric* fabric, seqtile_engine** engine) {
  return guarded([&] {
    c_api::give(engine, "engine",
                [&] { return c_api::opened_on(c_api::read_options(options_json, false), required(fabric, "fabric")); });
  });
}

seqtile_status seqtile_engine_refresh(seqtile_engine* engine) {
  return guarded([&] { required(engine, "engine").it.engine->refresh(); });
}

seqtile_status seqtile_engine_counters(seqtile_engine* engine, char** json) {
  return guarded([&] {
    required(json, "json") = nullptr;
    *json = c_api::new_text(c_api::json_of(required(engine, "engine").it.engine->counters()).dump());
  });
}

seqtile_status seqtile_engine_write_misses(seqtile_engine* engine, const char* path) {
  return guarded([&] { required(engine, "engine").it.engine->write_misses(&required(path, "path")); });
}

void seqtile_engine_retain(seqtile_engine* engine) { c_api::retain(engine); }
void seqtile_engine_release(seqtile_engine* engine) { c_api::release(engine); }

seqtile_status seqtile_engine_prepare(seqtile_engine* engine, const char* operation, const char* fields_json,
                                      seqtile_op** op) {
  return guarded([&] {
    c_api::give(op, "op", [&] { return c_api::prepared(required(engine, "engine").it, operation, fields_json); });
  });
}

seqtile_status seqtile_engine_prepare_on(seqtile_engine* engine, const char* operation, const char* fields_json,
                                         seqtile_channel* channel, seqtile_op** op) {
  return guarded([&] {
    c_api::give(op, "op", [&] {
      return c_api::prepared_on(required(engine, "engine").it, operation, fields_json, required(channel, "channel").it);
    });
  });
}

const char* seqtile_version(void) { return SEQTILE_VERSION; }
int32_t seqtile_abi_version(void) { return SEQTILE_ABI_VERSION; }
