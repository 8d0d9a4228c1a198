// c_api/tensors.cpp -- see tensors.h.
// SPDX-License-Identifier: Apache-2.0
#include "c_api/tensors.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "c_api/objects.h"
#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::c_api {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

[[noreturn]] void refuse(size_t index, const autotune::ArgSpec& spec, const std::string& problem) {
  refuse(fmt::format("argument {} '{}': {}", index, spec.name, problem));
}

[[noreturn]] void refuse_number(size_t given, std::span<const autotune::ArgSpec> specs) {
  std::vector<std::string_view> names;
  for (const autotune::ArgSpec& spec : specs) names.push_back(spec.name);
  refuse(fmt::format("{} given, {} expected: {}", counted(given, "tensor"), specs.size(), fmt::join(names, ", ")));
}

// Codes of DLPack, which older headers of it do not all have.
constexpr uint8_t kInt = 0, kFloat = 2, kBfloat = 4, kBool = 6;

/// The element types that DLPack and the library both have.
struct ElementType {
  uint8_t code, bits;
  DType dtype;
};
constexpr ElementType kElementTypes[] = {
    {kBool, 8, DType::i1},      {kInt, 8, DType::i8},     {kInt, 16, DType::i16},
    {kInt, 32, DType::i32},     {kInt, 64, DType::i64},   {kFloat, 16, DType::f16},
    {kBfloat, 16, DType::bf16}, {kFloat, 32, DType::f32}, {kFloat, 64, DType::f64}};

std::optional<DType> dtype_of(DLDataType type) {
  for (const ElementType& known : kElementTypes)
    if (type.lanes == 1 && type.code == known.code && type.bits == known.bits) return known.dtype;
  return std::nullopt;
}

std::string name_of(DLDataType type) {
  const char* const kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const std::string code = type.code < std::size(kNames) ? kNames[type.code] : fmt::format("code {}, ", type.code);
  return fmt::format("{}{}{}", code, type.bits, type.lanes == 1 ? "" : fmt::format(" x {}", type.lanes));
}

/// The device that a tensor's memory is on, as the codes of DLPack name it.
std::string name_of(DLDevice device) {
  switch (static_cast<int>(device.device_type)) {
    case kDLCPU: return "the CPU";
    case kDLCUDA: return fmt::format("cuda:{}", device.device_id);
    case kDLCUDAHost: return "pinned memory of the host";
    case kDLCUDAManaged: return "managed memory of CUDA";
    default: return fmt::format("DLPack's device {}", static_cast<int>(device.device_type));
  }
}

std::string name_of_device(int gpu) {
  if (gpu == kNoGpu) return "one whose memory DLPack cannot name";
  return gpu == kHost ? "the CPU" : fmt::format("cuda:{}", gpu);
}

bool fits(DLDevice device, int gpu) {
  const int type = static_cast<int>(device.device_type);
  if (gpu == kNoGpu) return false;
  if (type == kDLCUDAHost || type == kDLCUDAManaged) return true;  // the host and every GPU reach it
  return gpu == kHost ? type == kDLCPU : type == kDLCUDA && device.device_id == gpu;
}

Tensor tensor_of(size_t index, const autotune::ArgSpec& spec, const DLTensor* given, int gpu) {
  if (!given) refuse(index, spec, "the tensor is null");
  if (given->ndim < 0 || given->ndim > kMaxRank)
    refuse(index, spec, fmt::format("rank is {}, {} expected", given->ndim, spec.dims.size()));
  if (given->ndim > 0 && !given->shape) refuse(index, spec, "shape is null");
  if (!fits(given->device, gpu)) {
    refuse(index, spec,
           fmt::format("data is on {}, the engine's device is {}; copy the tensor, or open an engine there",
                       name_of(given->device), name_of_device(gpu)));
  }
  const auto dtype = dtype_of(given->dtype);
  if (!dtype)
    refuse(index, spec, fmt::format("dtype is {}, {} expected", name_of(given->dtype), dtype_name(spec.dtype)));
  Tensor tensor{given->data, *dtype, given->ndim, {}, {}};
  if (given->data) tensor.data = static_cast<char*>(given->data) + given->byte_offset;
  // Strides say nothing where there are no elements; NumPy gives 0 then.
  const bool has_strides =
      given->strides && std::all_of(given->shape, given->shape + given->ndim, [](int64_t size) { return size != 0; });
  int64_t dense = 1;
  for (int d = given->ndim; d-- > 0;) {
    const auto place = static_cast<size_t>(d);
    const int64_t size = given->shape[d];
    if (size < 0) refuse(index, spec, fmt::format("size of dimension {} is {}", d, size));
    tensor.sizes[place] = size;
    tensor.strides[place] = has_strides ? given->strides[d] : dense;
    if (!has_strides && __builtin_mul_overflow(dense, std::max<int64_t>(size, 1), &dense))
      refuse(index, spec, fmt::format("size of dimension {} is {}, beyond the address space", d, size));
  }
  return tensor;
}

}  // namespace

void add_tensors(std::span<const DLTensor* const> tensors, std::span<const autotune::ArgSpec> specs, int gpu,
                 kernels::Call& call) {
  if (tensors.size() != specs.size()) refuse_number(tensors.size(), specs);
  for (size_t i = 0; i < tensors.size(); ++i) call.add(tensor_of(i, specs[i], tensors[i], gpu));
}

}  // namespace seqtile::c_api
