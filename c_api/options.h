// c_api/options.h -- reads the JSON that the C interface takes: an engine's options, an operation's static fields.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/engine.h"
#include "seqtile/op.h"

namespace seqtile::c_api {

/// The threads that run an engine's calls on the CPU.
enum class Pool {
  own,
  openmp,     ///< of the OpenMP library that the process has loaded
  automatic,  ///< OpenMP's where there is such a library, else own
};

struct Options {
  EngineOptions engine;
  Pool pool = Pool::own;
};

/// Options of an engine; null is {}. `has_device`: false where a fabric gives device and threads.
/// Errors: invalid_argument on text that is not JSON, an unknown option, or a value of another type.
Options read_options(const char* json, bool has_device);

/// Static fields and "dtype"; null is {}. True and false are 1 and 0. The operation checks the fields when it is
/// prepared. Errors: invalid_argument on text that is not a flat object of numbers, texts, true and false.
autotune::Workload read_workload(const std::string& operation, const char* fields_json);

}  // namespace seqtile::c_api
