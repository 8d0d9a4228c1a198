// tests/support/references/interpreter.cpp -- the interpreter's programs, control flow and synchronisation.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/interpreter.h"

#include <cstdio>
#include <functional>
#include <unordered_map>

#include "seqtile/error.h"
#include "tests/support/references/interpreter_values.h"

namespace seqtile::testing {

using ir::Block;
using ir::Op;
using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

class Program {
 public:
  Program(const ir::Function& function, Grid grid, Grid id, std::span<const ParamValue> params) : grid_(grid), id_(id) {
    const auto& arguments = function.body().arguments;
    for (size_t i = 0; i < arguments.size(); ++i) bind(function.param_names()[i], arguments[i], params[i]);
  }

  void run(const Block& block) {
    for (const Op* op : block.ops) execute(*op);
  }

 private:
  [[noreturn]] static void fail(const Op& op, const std::string& message, ErrorCode code = ErrorCode::wrong_result) {
    std::string name(op.info().name);
    if (!op.results.empty()) name += " %" + std::to_string(op.results[0]->id);
    throw Error(code, name + ": " + message);
  }

  void bind(const std::string& name, const Value* value, const ParamValue& param) {
    const Type& type = value->type;
    if (const Tensor* tensor = std::get_if<Tensor>(&param); type.is_view() && tensor) {
      views_[value] = bind_view(name, type, *tensor);
      return;
    }
    TileData data(type);
    const bool fits = !type.is_view() && param.index() == (is_float(type.dtype) ? 2u : 1u);
    if (!fits) throw Error(ErrorCode::invalid_argument, "parameter " + name + " takes a value of " + to_string(type));
    if (data.holds_floats()) {
      data.floats[0] = round_to(type.dtype, std::get<double>(param));
    } else {
      data.ints[0] = wrap_to(type.dtype, std::get<int64_t>(param));
    }
    tiles_[value] = std::move(data);
  }

  const TileData& tile(const Value* value) const { return tiles_.at(value); }
  int64_t scalar(const Value* value) const { return tile(value).ints[0]; }

  void set_scalar(const Op& op, int64_t value) {
    TileData data(op.results[0]->type);
    data.ints[0] = value;
    tiles_[op.results[0]] = std::move(data);
  }

  void execute(const Op& op) {
    switch (op.info().group) {
      case ir::OpGroup::control: return control(op);
      case ir::OpGroup::memory: return memory(op);
      case ir::OpGroup::sync: return sync(op);
      case ir::OpGroup::debug: return debug(op);
      default: break;
    }
    if (op.kind == OpKind::select && op.operands[1]->type.is_view()) {
      views_[op.results[0]] = views_.at(op.operands[scalar(op.operands[0]) ? 1 : 2]);
      return;
    }
    std::vector<const TileData*> operands;
    for (const Value* operand : op.operands) operands.push_back(&tile(operand));
    std::vector<TileData> results = evaluate(op, operands);
    for (size_t i = 0; i < results.size(); ++i) tiles_[op.results[i]] = std::move(results[i]);
  }

  // control

  /// Copies first, so that values may be permuted: results and arguments may be among the sources.
  void assign(const std::vector<Value*>& to, size_t to_first, const std::vector<Value*>& from, size_t from_first) {
    std::vector<TileData> copies;
    for (size_t i = from_first; i < from.size(); ++i) copies.push_back(tile(from[i]));
    for (size_t i = 0; i < copies.size(); ++i) tiles_[to[to_first + i]] = std::move(copies[i]);
  }

  void control(const Op& op) {
    switch (op.kind) {
      case OpKind::program_id: return set_scalar(op, id_[op.int_attr("axis")]);
      case OpKind::num_programs: return set_scalar(op, grid_[op.int_attr("axis")]);
      case OpKind::for_loop: return for_loop(op);
      case OpKind::while_loop: return while_loop(op);
      case OpKind::if_then: {
        const Block& branch = *op.regions[scalar(op.operands[0]) ? 0 : 1];
        run(branch);
        return assign(op.results, 0, branch.yielded(), 0);
      }
      case OpKind::assume:
        if (!scalar(op.operands[0])) fail(op, "the assumption is false");
        return;
      default: return;  // the parent op reads yield
    }
  }

  void for_loop(const Op& op) {
    const int64_t lo = scalar(op.operands[0]), hi = scalar(op.operands[1]), step = scalar(op.operands[2]);
    if (step <= 0) fail(op, "the step " + std::to_string(step) + " is not positive");
    const Block& body = *op.regions[0];
    assign(op.results, 0, op.operands, 3);
    for (int64_t index = lo; index < hi; index += step) {
      TileData induction(body.arguments[0]->type);
      induction.ints[0] = index;
      tiles_[body.arguments[0]] = std::move(induction);
      assign(body.arguments, 1, op.results, 0);
      run(body);
      assign(op.results, 0, body.yielded(), 0);
    }
  }

  void while_loop(const Op& op) {
    const Block &test = *op.regions[0], &body = *op.regions[1];
    assign(op.results, 0, op.operands, 0);
    while (true) {
      assign(test.arguments, 0, op.results, 0);
      run(test);
      assign(op.results, 0, test.yielded(), 1);
      if (!scalar(test.yielded()[0])) return;
      assign(body.arguments, 0, op.results, 0);
      run(body);
      assign(op.results, 0, body.yielded(), 0);
    }
  }

  // memory

  std::vector<int64_t> indices(const Op& op, size_t first, int rank) const {
    std::vector<int64_t> result;
    for (int i = 0; i < rank; ++i) result.push_back(scalar(op.operands[first + i]));
    return result;
  }

  /// The address of the element of a scalar access. Errors: wrong_result if the element does not exist.
  char* element(const Op& op, const View& view) const {
    const std::vector<int64_t> index = indices(op, 1, view.rank);
    char* address = view.address(index);
    if (address) return address;
    std::string text;
    for (int i = 0; i < view.rank; ++i)
      text += (i ? ", " : "") + std::to_string(index[i]) + " of " + std::to_string(view.sizes[i]);
    fail(op, "the element [" + text + "] is out of range");
  }

  /// Calls visit(flat index in the tile, address or nullptr) for a window whose first element is at `offsets`.
  template <class Visit>
  static void visit_window(const View& view, const Type& window, const std::vector<int64_t>& offsets, Visit visit) {
    for (int64_t flat = 0; flat < window.num_elements(); ++flat) {
      std::vector<int64_t> index = offsets;
      int64_t rest = flat;
      for (int i = window.rank - 1; i >= 0; --i) {
        index[i] += rest % window.shape[i];
        rest /= window.shape[i];
      }
      visit(flat, view.address(index));
    }
  }

  /// As visit_window(), for gather and scatter: row i of the tile is row rows[i] of the view.
  template <class Visit>
  void visit_rows(const Op& op, const View& view, const Type& window, Visit visit) const {
    const TileData& rows = tile(op.operands[1]);
    const int64_t column = scalar(op.operands[2]), width = window.shape[1];
    for (int64_t flat = 0; flat < window.num_elements(); ++flat) {
      const int64_t index[] = {rows.ints[flat / width], column + flat % width};
      visit(flat, view.address(index));
    }
  }

  void memory(const Op& op) {
    if (op.kind == OpKind::view_at) return view_at(op);
    const View& view = views_.at(op.operands[0]);
    switch (op.kind) {
      case OpKind::size: return set_scalar(op, view.sizes[op.int_attr("axis")]);
      case OpKind::address: return set_scalar(op, reinterpret_cast<int64_t>(view.base));
      case OpKind::slice: return slice(op, view);
      case OpKind::at: return at(op, view);
      case OpKind::load:
      case OpKind::gather: return load(op, view);
      case OpKind::store:
      case OpKind::store_add:
      case OpKind::scatter: return store(op, view);
      case OpKind::load_scalar: {
        TileData data(op.results[0]->type);
        read_element(data, 0, element(op, view));
        tiles_[op.results[0]] = std::move(data);
        return;
      }
      case OpKind::store_scalar: return write_element(tile(op.operands.back()), 0, element(op, view));
      default: return;  // prefetch has no effect
    }
  }

  void slice(const Op& op, View view) {
    const std::vector<int64_t> offsets = indices(op, 1, view.rank), sizes = indices(op, 1 + view.rank, view.rank);
    for (int i = 0; i < view.rank; ++i) {
      const bool fits = sizes[i] == 0 || (offsets[i] >= 0 && sizes[i] > 0 && offsets[i] + sizes[i] <= view.sizes[i]);
      if (!fits)
        fail(op, "offset " + std::to_string(offsets[i]) + " and size " + std::to_string(sizes[i]) + " leave axis " +
                     std::to_string(i) + " of size " + std::to_string(view.sizes[i]));
      view.base += sizes[i] == 0 ? 0 : offsets[i] * view.strides[i] * dtype_bytes(view.dtype);
      view.sizes[i] = sizes[i];
    }
    views_[op.results[0]] = view;
  }

  void view_at(const Op& op) {
    const Type& type = op.results[0]->type;
    View view;
    view.dtype = type.dtype, view.rank = type.rank;
    view.base = reinterpret_cast<char*>(scalar(op.operands[0]));
    int64_t stride = 1;
    for (int i = type.rank - 1; i >= 0; --i) {
      view.sizes[i] = scalar(op.operands[1 + i]), view.strides[i] = stride;
      stride *= view.sizes[i];
    }
    views_[op.results[0]] = view;
  }

  void at(const Op& op, View view) {
    const int64_t axis = op.int_attr("axis"), index = scalar(op.operands[1]);
    if (index < 0 || index >= view.sizes[axis])
      fail(op, "the index " + std::to_string(index) + " is not in axis " + std::to_string(axis) + " of size " +
                   std::to_string(view.sizes[axis]));
    view.base += index * view.strides[axis] * dtype_bytes(view.dtype);
    for (int i = static_cast<int>(axis); i + 1 < view.rank; ++i) {
      view.sizes[i] = view.sizes[i + 1];
      view.strides[i] = view.strides[i + 1];
    }
    --view.rank;
    views_[op.results[0]] = view;
  }

  void load(const Op& op, const View& view) {
    TileData data(op.results[0]->type);
    const double fill = op.float_attr("fill");
    const auto visit = [&](int64_t flat, const char* address) {
      address ? read_element(data, flat, address) : set_element(data, flat, fill);
    };
    if (op.kind == OpKind::gather) {
      visit_rows(op, view, data.type, visit);
    } else {
      visit_window(view, data.type, indices(op, 1, view.rank), visit);
    }
    tiles_[op.results[0]] = std::move(data);
  }

  void store(const Op& op, const View& view) {
    TileData data = tile(op.operands.back());
    const auto visit = [&](int64_t flat, char* address) {
      if (!address) return;
      if (op.kind == OpKind::store_add) add_element(data, flat, address);
      write_element(data, flat, address);
    };
    if (op.kind == OpKind::scatter) {
      visit_rows(op, view, data.type, visit);
    } else {
      visit_window(view, data.type, indices(op, 1, view.rank), visit);
    }
  }

  /// data[index] += the element in memory.
  static void add_element(TileData& data, int64_t index, const char* address) {
    TileData old(ir::scalar_type(data.type.dtype));
    read_element(old, 0, address);
    if (data.holds_floats()) {
      data.floats[index] += old.floats[0];
    } else {
      data.ints[index] =
          static_cast<int64_t>(static_cast<uint64_t>(data.ints[index]) + static_cast<uint64_t>(old.ints[0]));
    }
  }

  // synchronisation: programs run one at a time, so that all accesses are ordered

  void sync(const Op& op) {
    if (op.operands.empty()) return;  // fence, griddep
    const View& view = views_.at(op.operands[0]);
    char* address = element(op, view);
    TileData old(ir::scalar_type(view.dtype));
    read_element(old, 0, address);
    if (op.kind == OpKind::clock) return set_scalar(op, 0);
    if (op.kind == OpKind::atomic_load) {
      tiles_[op.results[0]] = std::move(old);
      return;
    }
    if (op.kind == OpKind::await) {
      if (old.ints[0] != scalar(op.operands[op.operands.size() - 2]))
        fail(op, "nothing can change the flag: programs run one after another", ErrorCode::timeout);
      return set_scalar(op, 0);
    }
    TileData value = tile(op.operands.back());
    const std::string_view kind = op.string_attr("kind");
    if (op.kind == OpKind::wait_ge) {
      if (old.ints[0] < value.ints[0])
        fail(op,
             "the element is " + std::to_string(old.ints[0]) + " and nothing can raise it to " +
                 std::to_string(value.ints[0]) + ": programs run one after another",
             ErrorCode::timeout);
      return;
    }
    const bool swaps = op.kind != OpKind::cas || old.ints == tile(op.operands[op.operands.size() - 2]).ints;
    const bool keeps_old = (kind == "max" || kind == "min") && is_beyond(old, value, kind == "max");
    if (kind == "add") add_element(value, 0, address);
    if (swaps && !keeps_old) write_element(value, 0, address);
    if (!op.results.empty()) tiles_[op.results[0]] = std::move(old);
  }

  static bool is_beyond(const TileData& old, const TileData& value, bool wants_max) {
    if (old.holds_floats()) return wants_max ? old.floats[0] > value.floats[0] : old.floats[0] < value.floats[0];
    return wants_max ? old.ints[0] > value.ints[0] : old.ints[0] < value.ints[0];
  }

  void debug(const Op& op) {
    const TileData& value = tile(op.operands[0]);
    const std::string message(op.string_attr("message"));
    if (op.kind == OpKind::assert_true) {
      if (!value.ints[0]) fail(op, message);
      return;
    }
    const std::string number = value.holds_floats() ? std::to_string(value.floats[0]) : std::to_string(value.ints[0]);
    std::fprintf(stderr, "%s: %s\n", message.c_str(), number.c_str());
  }

  Grid grid_, id_;
  std::unordered_map<const Value*, TileData> tiles_;
  std::unordered_map<const Value*, View> views_;
};

}  // namespace

void interpret(const ir::Function& function, Grid grid, std::span<const ParamValue> params) {
  const size_t expected = function.body().arguments.size();
  if (params.size() != expected)
    throw Error(ErrorCode::invalid_argument, function.name() + " takes " + std::to_string(expected) +
                                                 " parameters, not " + std::to_string(params.size()));
  Grid id{};
  for (id[2] = 0; id[2] < grid[2]; ++id[2])
    for (id[1] = 0; id[1] < grid[1]; ++id[1])
      for (id[0] = 0; id[0] < grid[0]; ++id[0]) Program(function, grid, id, params).run(function.body());
}

}  // namespace seqtile::testing
