// jit/base/env.h -- the only place that reads environment variables; docs/env.md lists them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace seqtile::env {

std::optional<std::string> log_level();   ///< SEQTILE_LOG: a number from 0 on, if it is well formed
std::optional<std::string> cpu_target();  ///< SEQTILE_CPU_TARGET: forces a CPU target by name
std::optional<std::string> cache_dir();   ///< SEQTILE_CACHE_DIR, else XDG_CACHE_HOME/seqtile, else ~/.cache/seqtile
std::optional<std::string> config_dir();  ///< SEQTILE_CONFIG_DIR, else XDG_CONFIG_HOME/seqtile, else ~/.config/seqtile
std::optional<std::string> lock_dir();    ///< SEQTILE_LOCK_DIR: where tuning processes keep the locks of devices
std::optional<std::string> worker_program();         ///< SEQTILE_WORKER: the executable that runs candidates
std::optional<std::string> ptxas_program();          ///< SEQTILE_PTXAS: the assembler of GPU code, or "none"
void set_ptxas_program(const std::string& program);  ///< for a worker, which uses its tuner's; no other thread may run
/// Folders in which programs of a CUDA toolkit are looked for: CUDA_HOME/bin, CUDA_PATH/bin, those of PATH.
std::vector<std::string> toolkit_folders();

}  // namespace seqtile::env
