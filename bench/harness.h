// bench/harness.h -- races between implementations of one operation, in interleaved rounds.
// SPDX-License-Identifier: Apache-2.0
//
// A case is one operation, dtype, shape and thread count; its implementations are ours, the peers and the roofline.
// race() verifies each implementation on poisoned outputs, then times them in turn (A B C, B C A, ...). A shared
// machine drifts more between two minutes than two libraries differ, so only calls of the same round are compared.
// Names are <operation>/<dtype>/<shape>/<implementation>/t<threads>.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/tensor.h"

namespace seqtile::bench {

/// The compulsory work of one call, for rates and the roofline.
struct Work {
  double flops = 0;
  double bytes_read = 0, bytes_written = 0;
  DType peak_dtype = DType::f32;  ///< dtype whose multiply-add peak bounds the call
};

struct Result {
  std::string implementation;
  std::vector<double> seconds;  ///< of one call: the median of each round
  int64_t calls = 0;            ///< timed calls in all rounds
  double max_error = 0;         ///< of the verification
  std::map<std::string, double> counters;
  std::string label;    ///< printed beside the times, for example a configuration
  std::string failure;  ///< why there are no times; empty: there are
};

struct RunOptions {
  int rounds = 15;
  double round_s = 0.02;  ///< time for the calls of one implementation in one round
};

struct Case {
  std::string operation, dtype, shape;
  int threads = 1;
  std::string group;  ///< cases that are summed up together: "m7..128"
  Work work;
  std::vector<std::string> implementations;  ///< without the roofline, which follows from `work`
  /// Measures the selected implementations. Returns a result for each, in the same order.
  std::function<std::vector<Result>(const Case& self, const std::vector<std::string>& selected, const RunOptions&)> run;

  std::string name(const std::string& implementation) const {
    return operation + "/" + dtype + "/" + shape + "/" + implementation + "/t" + std::to_string(threads);
  }
};

/// One implementation of a case, set up and ready to be called on any copy of the case's operands.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual void run(int copy) = 0;
  /// Makes `calls` calls on the copies first, first + 1, ... (modulo `copies`). Returns the seconds of each call.
  virtual std::vector<double> burst(int first, int calls, int copies);
  /// Copies the outputs of a copy to the case's operands. Only implementations that write elsewhere need it.
  virtual void fetch(int) {}
};

/// A contestant made of two functions of the copy. `fetch` may be empty.
std::unique_ptr<Contestant> make_contestant(std::function<void(int)> run, std::function<void(int)> fetch = {});

/// The operands of a case: allocated when its race starts, freed when it ends.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual int copies() const = 0;
  virtual std::unique_ptr<Contestant> enter(const std::string& implementation) = 0;
  virtual void poison(int copy) = 0;
  /// Largest error of the outputs of `copy` against a reference in double, in the arena's unit.
  virtual double max_error(int copy) = 0;
  virtual double error_limit(const std::string& implementation) const = 0;
};

/// Compares a race's median with the tuner's. Empty if the race took at most 1.3 times the tuner's time, and at least
/// share / 1.3 times. Otherwise the text says what to do. The tuner measures at the upper end of a bucket; `share` is
/// the raced length over that end.
std::string tuner_difference(double raced_us, double tuned_us, double share);

/// Verifies each implementation, then times all. An implementation that cannot be set up or verified has a failure and
/// no times.
std::vector<Result> race(Arena& arena, const Case& shape, const std::vector<std::string>& selected,
                         const RunOptions& options);

}  // namespace seqtile::bench
