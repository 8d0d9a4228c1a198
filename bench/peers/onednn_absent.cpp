// bench/peers/onednn_absent.cpp -- stands in for onednn.cpp in a build without oneDNN.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/onednn.h"
#include "seqtile/error.h"

namespace seqtile::bench {

std::string onednn_version() { return ""; }

std::unique_ptr<OnednnLinear> make_onednn_linear(const Tensor&, const Tensor&, const Tensor&, int, bool) {
  throw Error(ErrorCode::unsupported,
              "bench: this build has no oneDNN; install its development package and configure again");
}

}  // namespace seqtile::bench
