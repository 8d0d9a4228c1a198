// autotune/keys.cpp -- the keys of tuning records and of binaries.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuner.h"
#include "jit/base/hash.h"
#include "jit/compiler.h"

namespace seqtile::autotune {
namespace {

/// Threads of the host are no matter on a GPU: what one machine decides holds where others have more cores.
std::string key_text(Workload workload, bool is_gpu) {
  if (is_gpu) workload.threads = 1;
  return workload.json();
}

/// Any assembler's code serves a GPU that loads cubins, and PTX does too: a store that was filled where there is a
/// ptxas is found where there is none.
std::string artifact_toolchain(const Target& target) {
  if (!target.loads_cubins) return toolchain_version(target);
  return std::string(toolchain_version()) + ", sm_" + std::to_string(target.gpu.compute_capability);
}

}  // namespace

Fields machine_of(const DeviceInfo& device) {
  Fields machine;
  for (const auto& [name, value] : device.facts) machine.set(name, value);
  machine.set("device_kind", device.kind);
  return machine;
}

cache::TuningKey make_key(const OpDef& op, const Workload& workload, const DeviceInfo& device,
                          const std::string& policy) {
  Fields env = machine_of(device);
  env.set("policy", policy);
  env.set("toolchain", std::string(toolchain_version()));
  return {device.kind, device.name,      env.json(),
          op.name,     op.source_hash(), key_text(workload, device.kind == "cuda" || device.kind == "sim"),
          op.version};
}

ArtifactKey make_artifact_key(const OpDef& op, const Workload& workload, const Config& config, const Target& target) {
  // Kernels may size their tiles by the caches, so these belong to what the bytes depend on.
  Fields manifest{{"operation", op.name},
                  {"source_hash", op.source_hash()},
                  {"workload", key_text(workload, target.is_gpu())},
                  {"config", config.json()},
                  {"target", target.name},
                  {"triple", target.triple},
                  {"cpu", target.cpu},
                  {"features", target.features},
                  {"l1_bytes", target.l1_bytes},
                  {"l2_bytes", target.l2_bytes},
                  {"l3_bytes", target.l3_bytes},
                  {"toolchain", artifact_toolchain(target)}};
  std::string text = manifest.json();
  return {sha256_hex(text), std::move(text)};
}

}  // namespace seqtile::autotune
