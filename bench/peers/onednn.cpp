// bench/peers/onednn.cpp -- matmul and inner product primitives of oneDNN 2.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/onednn.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

namespace seqtile::bench {
namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::data_type element(DType dtype) {
  return dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

struct Shared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Shared& shared() {
  static Shared instance;
  return instance;
}

/// One of the two forms. The logical weight is [k, n] for matmul and [n, k] for inner product.
class Form : public OnednnLinear {
 public:
  Form(const Tensor& x, const Tensor& w, int threads, bool packed, bool is_matmul) : threads_(threads) {
    omp_set_num_threads(threads_);
    const int64_t m = x.sizes[0], k = x.sizes[1], n = w.sizes[0];
    const auto type = element(x.dtype);
    using Tag = memory::format_tag;
    x_desc_ = memory::desc({m, k}, type, Tag::ab);
    y_desc_ = memory::desc({m, n}, type, Tag::ab);
    w_given_ = is_matmul ? memory::desc({k, n}, type, Tag::ba) : memory::desc({n, k}, type, Tag::ab);
    const auto wanted = packed ? memory::desc(w_given_.dims(), type, Tag::any) : w_given_;
    if (is_matmul) {
      dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x_desc_, wanted, y_desc_), shared().engine);
      w_desc_ = desc.weights_desc();
      primitive_ = dnnl::matmul(desc);
    } else {
      using Product = dnnl::inner_product_forward;
      Product::primitive_desc desc(Product::desc(dnnl::prop_kind::forward_inference, x_desc_, wanted, y_desc_),
                                   shared().engine);
      w_desc_ = desc.weights_desc();
      primitive_ = Product(desc);
    }
  }

  void run(const Tensor& x, const Tensor& w, const Tensor& y) override {
    execute(x, memory(w_desc_, shared().engine, w.data), y);
  }

  void pack(int copy, const Tensor& w) override {
    memory given(w_given_, shared().engine, w.data), own(w_desc_, shared().engine);
    dnnl::reorder(given, own).execute(shared().stream, given, own);
    shared().stream.wait();
    packed_[copy] = own;
  }

  void run_packed(int copy, const Tensor& x, const Tensor& y) override { execute(x, packed_.at(copy), y); }

 private:
  void execute(const Tensor& x, const memory& w, const Tensor& y) {
    omp_set_num_threads(threads_);
    primitive_.execute(shared().stream, {{DNNL_ARG_SRC, memory(x_desc_, shared().engine, x.data)},
                                         {DNNL_ARG_WEIGHTS, w},
                                         {DNNL_ARG_DST, memory(y_desc_, shared().engine, y.data)}});
    shared().stream.wait();
  }

  int threads_;
  memory::desc x_desc_, w_given_, w_desc_, y_desc_;
  dnnl::primitive primitive_;
  std::map<int, memory> packed_;
};

double trial_seconds(OnednnLinear& form, const Tensor& x, const Tensor& w, const Tensor& y, bool packed) {
  double best = 1e30;
  if (packed) form.pack(-1, w);
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    packed ? form.run_packed(-1, x, y) : form.run(x, w, y);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

std::unique_ptr<OnednnLinear> make_onednn_linear(const Tensor& x, const Tensor& w, const Tensor& y, int threads,
                                                 bool packed) {
  auto matmul = std::make_unique<Form>(x, w, threads, packed, true);
  const double matmul_s = trial_seconds(*matmul, x, w, y, packed);
  auto product = std::make_unique<Form>(x, w, threads, packed, false);
  return trial_seconds(*product, x, w, y, packed) < matmul_s ? std::move(product) : std::move(matmul);
}

}  // namespace seqtile::bench
