// kernels/seqpar/rank_call.cpp -- see rank_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/rank_call.h"

#include "kernels/seqpar/exchange/fused_op.h"
#include "kernels/seqpar/fused_handle.h"
#include "kernels/seqpar/rank_ops.h"

namespace seqtile::kernels::seqpar {

using autotune::RankCall;
using autotune::Workload;

void add_rank_call(autotune::OpDef& op) {
  op.on_rank = [schema = op.schema, symbols = op.symbols](const Workload& w, int rank, int64_t length) {
    RankCall call{world_size_of(w), w.fields.get_string("fabric"), channel_options({w}, length), symbols(w, length)};
    const std::vector<std::string> names = schema(w).symbols;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "own_rows") call.symbols[i] = own_rows(w, rank, length);
      if (names[i] == "own_columns") call.symbols[i] = rank_op(w.operation).columns(w, rank, false);
      if (names[i] == "own_kv_columns") call.symbols[i] = rank_op(w.operation).columns(w, rank, true);
    }
    return call;
  };
}

}  // namespace seqtile::kernels::seqpar
