// c_api/tvm_ffi.cpp -- the C interface once more by the calling convention of tvm-ffi, which PyTorch, JAX and others
// load.
// SPDX-License-Identifier: Apache-2.0
//
// A function `f` of the convention is the symbol __tvm_ffi_f: (self, arguments, their number, result) -> 0, or -1 after
// the error has been given to tvm-ffi's library. The declarations below are the parts of its C ABI that are used here
// (https://github.com/apache/tvm-ffi, include/tvm/ffi/c_api.h, version 0.1, Apache-2.0). Nothing of it is linked:
// whoever calls these functions has loaded its library.
//
// Objects travel as whole numbers, which this file gives out and takes back, so that a number that stands for nothing
// is an error and no crash. Out of memory in the table of numbers, the object is lost to the program and stays.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "c_api/objects.h"
#include "c_api/status.h"
#include "jit/runtime/loaded_library.h"
#include "seqtile/abi.h"
#include "seqtile/operation.h"

namespace seqtile::c_api {
namespace {

enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kFloat = 3,
  kTensorPointer = 7,
  kTextPointer = 8,
  kSmallText = 11,
  kText = 65,
  kTensor = 70,
};

struct Bytes {
  const char* data;
  size_t size;
};

struct Any {
  int32_t type;
  uint32_t small_size;  ///< of kSmallText; 0 otherwise
  union {
    int64_t integer;
    double number;
    void* pointer;
    char small[8];
  };
};
static_assert(sizeof(Any) == 16);

constexpr size_t kObjectHeader = 24;  ///< bytes of an object before its own content

/// Functions of tvm-ffi's library, which is loaded when one of ours is called.
struct Library {
  void (*set_error)(const char* kind, const char* message) = nullptr;
  int (*make_text)(const Bytes* text, Any* out) = nullptr;
  void* (*stream)(int32_t device_type, int32_t device_id) = nullptr;
};

const Library& library() {
  static const Library only = [] {
    Library found;
    void* handle = find_loaded_library({"libtvm_ffi.so"}, "TVMFFIErrorSetRaisedFromCStr");
    if (!handle) return found;
    found.set_error = reinterpret_cast<decltype(found.set_error)>(dlsym(handle, "TVMFFIErrorSetRaisedFromCStr"));
    found.make_text = reinterpret_cast<decltype(found.make_text)>(dlsym(handle, "TVMFFIStringFromByteArray"));
    found.stream = reinterpret_cast<decltype(found.stream)>(dlsym(handle, "TVMFFIEnvGetStream"));
    return found;
  }();
  return only;
}

/// The Python exception of a status.
const char* kind_of(seqtile_status status) {
  switch (status) {
    case SEQTILE_INVALID_ARGUMENT: return "ValueError";
    case SEQTILE_UNSUPPORTED: return "NotImplementedError";
    case SEQTILE_OUT_OF_RESOURCES: return "MemoryError";
    case SEQTILE_IO: return "OSError";
    case SEQTILE_TIMEOUT: return "TimeoutError";
    case SEQTILE_NO_RECORD: return "LookupError";
    default: return "RuntimeError";
  }
}

/// Goes through guarded() to tvm-ffi's error, for a function of the interface that has failed and said why.
struct Failed {
  seqtile_status status;
};

void check(seqtile_status status) {
  if (status != SEQTILE_OK) throw Failed{status};
}

/// The first of `count` numbers that nothing has had before. Kinds share them, so that no number of one kind is one of
/// another.
int64_t take_numbers(int64_t count) {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(count);
}

/// Numbers that stand for objects of one kind. An object lives as long as its number, and as calls that use it.
template <class Object, void (*kRetain)(Object*), void (*kRelease)(Object*)>
class Numbers {
 public:
  using Of = Object;
  explicit Numbers(const char* kind) : kind_(kind) {}

  /// Takes the references over. The numbers follow each other; returns the first.
  int64_t add(const std::vector<Object*>& objects) {
    const int64_t first = take_numbers(static_cast<int64_t>(objects.size()));
    const std::lock_guard lock(mutex_);
    int64_t number = first;
    for (Object* object : objects) objects_[number++] = object;
    return first;
  }
  std::shared_ptr<Object> find(int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end())
      throw Error(ErrorCode::invalid_argument, fmt::format("{} is no {}, or no longer one", number, kind_));
    kRetain(found->second);
    return {found->second, kRelease};
  }
  void remove(int64_t number) {
    const auto object = find(number);
    const std::lock_guard lock(mutex_);
    if (objects_.erase(number)) kRelease(object.get());
  }

 private:
  const char* const kind_;
  std::mutex mutex_;
  std::map<int64_t, Object*> objects_;
};

// The tables are never destroyed, as every static of the library.

auto& engines() {
  static auto& all = *new Numbers<seqtile_engine, seqtile_engine_retain, seqtile_engine_release>("engine");  // NOLINT
  return all;
}
auto& ops() {
  static auto& all = *new Numbers<seqtile_op, seqtile_op_retain, seqtile_op_release>("operation");  // NOLINT
  return all;
}
auto& fabrics() {
  static auto& all = *new Numbers<seqtile_fabric, seqtile_fabric_retain, seqtile_fabric_release>("fabric");  // NOLINT
  return all;
}
auto& channels() {
  static auto& all =
      *new Numbers<seqtile_channel, seqtile_channel_retain, seqtile_channel_release>("channel");  // NOLINT
  return all;
}

/// The arguments of one call, by position.
class Arguments {
 public:
  Arguments(const Any* all, int32_t count) : all_(all), count_(count) {}

  /// Errors: invalid_argument on another number of arguments than those that are named.
  void expect(std::initializer_list<const char*> names, bool may_have_more = false) {
    names_.assign(names.begin(), names.end());
    if (static_cast<size_t>(count_) == names_.size() || (may_have_more && static_cast<size_t>(count_) > names_.size()))
      return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} arguments given, {}{} expected: {}{}", count_, may_have_more ? "at least " : "",
                            names_.size(), fmt::join(names_, ", "), may_have_more ? ", tensors" : ""));
  }
  int32_t count() const { return count_; }
  bool is_none(int32_t i) const { return all_[i].type == kNone; }
  int64_t integer(int32_t i) const {
    if (all_[i].type != kInt) refuse(i, "a whole number");
    return all_[i].integer;
  }
  /// Errors: also invalid_argument on a number beyond 32 bits.
  int32_t integer32(int32_t i) const {
    const int64_t value = integer(i);
    if (value != static_cast<int32_t>(value)) refuse(i, "a whole number of 32 bits");
    return static_cast<int32_t>(value);
  }
  double number(int32_t i) const {
    if (all_[i].type == kFloat) return all_[i].number;
    return static_cast<double>(integer(i));
  }
  std::string text(int32_t i) const {
    const Any& any = all_[i];
    if (any.type == kTextPointer && any.pointer) return static_cast<const char*>(any.pointer);
    if (any.type == kSmallText) return {any.small, any.small_size};
    if (any.type != kText) refuse(i, "a text");
    const auto& bytes = *reinterpret_cast<const Bytes*>(static_cast<const char*>(any.pointer) + kObjectHeader);
    const std::string text(bytes.data, bytes.size);
    if (text.find('\0') != std::string::npos) refuse(i, "a text without a zero byte");
    return text;
  }
  const DLTensor* tensor(int32_t i) const {
    if (all_[i].type == kTensorPointer) return static_cast<const DLTensor*>(all_[i].pointer);
    if (all_[i].type != kTensor) refuse(i, "a tensor");
    return reinterpret_cast<const DLTensor*>(static_cast<const char*>(all_[i].pointer) + kObjectHeader);
  }

 private:
  [[noreturn]] void refuse(int32_t i, const char* wanted) const {
    const auto place = static_cast<size_t>(i);
    const std::string name = place < names_.size() ? names_[place] : fmt::format("argument {}", i);
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} is expected", name, wanted));
  }
  const Any* all_;
  int32_t count_;
  std::vector<const char*> names_;
};

/// Text or null, for functions that take null.
class OptionalText {
 public:
  OptionalText(const Arguments& arguments, int32_t i) {
    if (!arguments.is_none(i)) text_ = arguments.text(i);
  }
  const char* get() const { return text_ ? text_->c_str() : nullptr; }

 private:
  std::optional<std::string> text_;
};

Any none() { return {kNone, 0, {0}}; }
Any integer(int64_t value) { return {kInt, 0, {value}}; }

/// Takes the text over.
Any text_of(char* text) {
  const std::unique_ptr<char, decltype(&seqtile_text_free)> owned(text, seqtile_text_free);
  const Bytes bytes{text, std::char_traits<char>::length(text)};
  Any any = none();
  if (!library().make_text || library().make_text(&bytes, &any) != 0)
    throw Error(ErrorCode::unsupported, "tvm-ffi's library makes no text; version 0.1 of it is needed");
  return any;
}

template <class Body>
int served(const Any* all, int32_t count, Any* result, Body&& body) noexcept {
  seqtile_status of_function = SEQTILE_OK;
  const seqtile_status own = guarded([&] {
    try {
      Arguments arguments(all, count);
      *result = body(arguments);
    } catch (const Failed& failure) {
      of_function = failure.status;
    }
  });
  const seqtile_status status = own != SEQTILE_OK ? own : of_function;
  if (status == SEQTILE_OK) return 0;
  if (library().set_error) library().set_error(kind_of(status), seqtile_last_error());
  return -1;
}

/// Calls a function that returns a text.
template <class Function>
Any asked(Function&& function) {
  char* text = nullptr;
  check(function(&text));
  return text_of(text);
}

/// Calls a function that makes an object, whose number is returned.
template <class Table, class Function>
Any made(Table& table, Function&& function) {
  typename Table::Of* object = nullptr;
  check(function(&object));
  return integer(table.add({object}));
}

constexpr int32_t kLongestCall = kernels::Call::kMaxTensors;

/// (op, length or None, tensors...): on a GPU in the stream that tvm-ffi has for it.
Any call_op(Arguments& a) {
  a.expect({"op", "length"}, true);
  const auto op = ops().find(a.integer(0));
  const int64_t length = a.is_none(1) ? SEQTILE_LENGTH_OF_TENSORS : a.integer(1);
  const int32_t count = a.count() - 2;
  if (count > kLongestCall)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} tensors given, at most {} are taken", count, kLongestCall));
  std::array<const DLTensor*, kLongestCall> tensors{};
  for (int32_t i = 0; i < count; ++i) tensors[static_cast<size_t>(i)] = a.tensor(i + 2);
  void* stream = nullptr;
  if (op->it.gpu >= 0 && library().stream) stream = library().stream(kDLCUDA, op->it.gpu);
  check(seqtile_op_call(op.get(), tensors.data(), count, length, stream));
  return none();
}

Any open_threads(Arguments& a) {
  a.expect({"world_size", "threads"});
  std::vector<seqtile_fabric*> ranks(static_cast<size_t>(std::clamp<int64_t>(a.integer(0), 1, channel::kMaxRanks)));
  check(seqtile_fabric_open_threads(a.integer32(0), a.integer32(1), ranks.data()));
  return integer(fabrics().add(ranks));
}

Any make_world(Arguments& a) {
  a.expect({"world_size"});
  int descriptor = -1;
  check(seqtile_world_make(a.integer32(0), &descriptor));
  return integer(descriptor);
}

}  // namespace
}  // namespace seqtile::c_api

using namespace seqtile::c_api;

// The exported functions: each has the arguments of the function of its name, but that numbers stand for objects, texts
// are returned, and None stands for null.
#define SEQTILE_TVM_FUNCTION(name, body)                                                            \
  extern "C" int __tvm_ffi_##name(void*, const Any* all, int32_t count, Any* result) { /* NOLINT */ \
    return served(all, count, result, [](Arguments & a) -> Any body);                               \
  }

SEQTILE_TVM_FUNCTION(seqtile_operations, {
  a.expect({});
  return asked([](char** text) { return seqtile_operations(text); });
})
SEQTILE_TVM_FUNCTION(seqtile_engine_open, {
  a.expect({"options_json"});
  const OptionalText options(a, 0);
  return made(engines(), [&](seqtile_engine** engine) { return seqtile_engine_open(options.get(), engine); });
})
SEQTILE_TVM_FUNCTION(seqtile_engine_open_on, {
  a.expect({"options_json", "fabric"});
  const OptionalText options(a, 0);
  const auto fabric = fabrics().find(a.integer(1));
  return made(engines(),
              [&](seqtile_engine** engine) { return seqtile_engine_open_on(options.get(), fabric.get(), engine); });
})
SEQTILE_TVM_FUNCTION(seqtile_engine_refresh, {
  a.expect({"engine"});
  check(seqtile_engine_refresh(engines().find(a.integer(0)).get()));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_engine_counters, {
  a.expect({"engine"});
  const auto engine = engines().find(a.integer(0));
  return asked([&](char** text) { return seqtile_engine_counters(engine.get(), text); });
})
SEQTILE_TVM_FUNCTION(seqtile_engine_write_misses, {
  a.expect({"engine", "path"});
  check(seqtile_engine_write_misses(engines().find(a.integer(0)).get(), a.text(1).c_str()));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_engine_release, {
  a.expect({"engine"});
  engines().remove(a.integer(0));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_engine_prepare, {
  a.expect({"engine", "operation", "fields_json"});
  const auto engine = engines().find(a.integer(0));
  const std::string operation = a.text(1);
  const OptionalText fields(a, 2);
  return made(ops(), [&](seqtile_op** op) {
    return seqtile_engine_prepare(engine.get(), operation.c_str(), fields.get(), op);
  });
})
SEQTILE_TVM_FUNCTION(seqtile_engine_prepare_on, {
  a.expect({"engine", "operation", "fields_json", "channel"});
  const auto engine = engines().find(a.integer(0));
  const std::string operation = a.text(1);
  const OptionalText fields(a, 2);
  const auto channel = channels().find(a.integer(3));
  return made(ops(), [&](seqtile_op** op) {
    return seqtile_engine_prepare_on(engine.get(), operation.c_str(), fields.get(), channel.get(), op);
  });
})
SEQTILE_TVM_FUNCTION(seqtile_op_call, { return call_op(a); })
SEQTILE_TVM_FUNCTION(seqtile_op_describe, {
  a.expect({"op"});
  const auto op = ops().find(a.integer(0));
  return asked([&](char** text) { return seqtile_op_describe(op.get(), text); });
})
SEQTILE_TVM_FUNCTION(seqtile_op_explain, {
  a.expect({"op", "length"});
  const auto op = ops().find(a.integer(0));
  return asked([&](char** text) { return seqtile_op_explain(op.get(), a.integer(1), text); });
})
SEQTILE_TVM_FUNCTION(seqtile_op_release, {
  a.expect({"op"});
  ops().remove(a.integer(0));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_fabric_open_threads, { return open_threads(a); })
SEQTILE_TVM_FUNCTION(seqtile_world_make, { return make_world(a); })
SEQTILE_TVM_FUNCTION(seqtile_fabric_join, {
  a.expect({"descriptor", "rank", "threads", "timeout_seconds"});
  return made(fabrics(), [&](seqtile_fabric** fabric) {
    return seqtile_fabric_join(a.integer32(0), a.integer32(1), a.integer32(2), a.number(3), fabric);
  });
})
SEQTILE_TVM_FUNCTION(seqtile_fabric_describe, {
  a.expect({"fabric"});
  const auto fabric = fabrics().find(a.integer(0));
  return asked([&](char** text) { return seqtile_fabric_describe(fabric.get(), text); });
})
SEQTILE_TVM_FUNCTION(seqtile_fabric_release, {
  a.expect({"fabric"});
  fabrics().remove(a.integer(0));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_channel_open, {
  a.expect({"fabric", "max_rows", "timeout_seconds"});
  const auto fabric = fabrics().find(a.integer(0));
  return made(channels(), [&](seqtile_channel** channel) {
    return seqtile_channel_open(fabric.get(), a.integer(1), a.number(2), channel);
  });
})
SEQTILE_TVM_FUNCTION(seqtile_channel_check, {
  a.expect({"channel"});
  check(seqtile_channel_check(channels().find(a.integer(0)).get()));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_channel_reset, {
  a.expect({"channel"});
  check(seqtile_channel_reset(channels().find(a.integer(0)).get()));
  return none();
})
SEQTILE_TVM_FUNCTION(seqtile_channel_release, {
  a.expect({"channel"});
  channels().remove(a.integer(0));
  return none();
})

#undef SEQTILE_TVM_FUNCTION
