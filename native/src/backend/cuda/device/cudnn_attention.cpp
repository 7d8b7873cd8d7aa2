#include "backend/cuda/device/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "backend/cuda/shared_library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // declared by cudnn-frontend, which takes every function of cuDNN from here
}

namespace internevo::cuda {

namespace {

namespace fe = cudnn_frontend;

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr std::size_t kOldest = 91200;         // the first for CUDA 13
constexpr std::int64_t kWorkspaceAlign = 256;  // of cudaMalloc's memory, which cuDNN is used to

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kStatistics, kGO, kGQ, kGK, kGV };

Status refused(const std::string& what) { return {StatusCode::badConfig, what}; }

Status feStatus(fe::error_t error) {
  return error.is_good() ? Status::success() : refused("cuDNN: " + error.get_message());
}

Status cudnnStatus(cudnnStatus_t code, const char* call) {
  if (code == CUDNN_STATUS_SUCCESS) return Status::success();
  return {StatusCode::internal, std::string(call) + ": " + fe::detail::get_error_string(code)};
}

/// cudnn-frontend throws where a library or one of its functions is missing.
template <typename Body>
Status guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return refused(std::string("cuDNN: ") + error.what());
  }
}

std::string versionText(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

struct Prepared {
  fe::graph::Graph graph;
  std::unordered_map<std::int64_t, void*> pack;
};

class CudnnAttention final : public AttentionLibrary {
 public:
  ~CudnnAttention() override {
    prepared_.clear();
    if (handle_ != nullptr)
      static_cast<void>(
          guarded([&] { return cudnnStatus(fe::detail::destroy_handle(handle_), "cudnnDestroy"); }));
  }

  Status start() {
    return guarded([&]() -> Status {
      version_ = fe::detail::get_backend_version();
      if (version_ < kOldest || version_ >= 100000) {
        return refused("cuDNN is " + versionText(version_) + "; 9.12 or a newer one of 9 is needed");
      }
      return cudnnStatus(fe::detail::create_handle(&handle_), "cudnnCreate");
    });
  }

  std::string name() const override { return "cuDNN " + version(); }
  std::string version() const override { return versionText(version_); }

  Status prepare(const AttentionProblem& problem, AttentionPass pass, std::int64_t roomBytes) override {
    if (prepared_.contains({problem, pass})) return Status::success();
    return guarded([&]() -> Status {
      auto made = std::make_unique<Prepared>();
      INTERNEVO_RETURN_IF_ERROR(describe(problem, pass, &made->graph));
      INTERNEVO_RETURN_IF_ERROR(build(roomBytes, &made->graph));
      prepared_.emplace(std::pair(problem, pass), std::move(made));
      return Status::success();
    });
  }

  Status compute(const Queue& queue, const AttentionProblem& problem, AttentionPass pass,
                 const LibraryAttention& x) override {
    const auto found = prepared_.find({problem, pass});
    if (found == prepared_.end()) return {StatusCode::internal, "attention by cuDNN was not prepared"};
    auto& pack = found->second->pack;
    pack[kQ] = const_cast<void*>(x.q.data), pack[kK] = const_cast<void*>(x.k.data),
    pack[kV] = const_cast<void*>(x.v.data);
    pack[kO] = x.o.data, pack[kStatistics] = x.logSumExp.data;
    if (pass == AttentionPass::backward) {
      pack[kGO] = const_cast<void*>(x.gO.data);
      pack[kGQ] = x.gQ.data, pack[kGK] = x.gK.data, pack[kGV] = x.gV.data;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(x.scratch.data);
    void* const scratch =
        reinterpret_cast<void*>((address + kWorkspaceAlign - 1) / kWorkspaceAlign * kWorkspaceAlign);
    return guarded([&]() -> Status {
      INTERNEVO_RETURN_IF_ERROR(cudnnStatus(fe::detail::set_stream(handle_, queue.stream), "cudnnSetStream"));
      return feStatus(found->second->graph.execute(handle_, pack, scratch));
    });
  }

 private:
  /// Causal. A left bound is the number of keys that a query sees, its own among them.
  template <typename Attributes>
  static void setMask(const AttentionProblem& problem, Attributes* attributes) {
    attributes->set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (problem.window > 0) attributes->set_diagonal_band_left_bound(static_cast<int>(problem.window));
  }

  static Status describe(const AttentionProblem& problem, AttentionPass pass, fe::graph::Graph* graph) {
    const AttentionLayouts layouts = layoutsOf(problem);
    graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto place = [](const TensorLayout& layout, fe::graph::Tensor_attributes* tensor, Uid uid,
                          fe::DataType_t type) {
      tensor->set_uid(uid).set_data_type(type);
      tensor->set_dim({layout.extent.begin(), layout.extent.end()})
          .set_stride({layout.stride.begin(), layout.stride.end()});
    };
    const auto input = [&](const char* name, const TensorLayout& layout, Uid uid,
                           fe::DataType_t type = fe::DataType_t::BFLOAT16) {
      fe::graph::Tensor_attributes tensor;
      tensor.set_name(name);
      place(layout, &tensor, uid, type);
      return graph->tensor(tensor);
    };
    const auto output = [&](const std::shared_ptr<fe::graph::Tensor_attributes>& tensor,
                            const TensorLayout& layout, Uid uid,
                            fe::DataType_t type = fe::DataType_t::BFLOAT16) {
      tensor->set_output(true);
      place(layout, tensor.get(), uid, type);
    };
    const auto q = input("q", layouts.q, kQ), k = input("k", layouts.k, kK), v = input("v", layouts.v, kV);
    if (pass == AttentionPass::forward) {
      fe::graph::SDPA_attributes attributes;
      attributes.set_name("attention").set_generate_stats(true).set_attn_scale(scaleOf(problem));
      setMask(problem, &attributes);
      const auto [o, statistics] = graph->sdpa(q, k, v, attributes);
      output(o, layouts.o, kO);
      output(statistics, layouts.logSumExp, kStatistics, fe::DataType_t::FLOAT);
      return Status::success();
    }
    const auto o = input("o", layouts.o, kO), gO = input("gO", layouts.o, kGO);
    const auto statistics = input("logSumExp", layouts.logSumExp, kStatistics, fe::DataType_t::FLOAT);
    fe::graph::SDPA_backward_attributes attributes;
    attributes.set_name("attention backward")
        .set_attn_scale(scaleOf(problem))
        .set_deterministic_algorithm(problem.deterministic);
    setMask(problem, &attributes);
    const auto [gQ, gK, gV] = graph->sdpa_backward(q, k, v, o, gO, statistics, attributes);
    output(gQ, layouts.q, kGQ), output(gK, layouts.k, kGK), output(gV, layouts.v, kGV);
    return Status::success();
  }

  Status build(std::int64_t roomBytes, fe::graph::Graph* graph) {
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->validate()));
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->build_operation_graph(handle_)));
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->create_execution_plans({fe::HeurMode_t::A})));
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->check_support()));
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->build_plans()));
    std::int64_t bytes = 0;
    INTERNEVO_RETURN_IF_ERROR(feStatus(graph->get_workspace_size(bytes)));
    if (bytes + kWorkspaceAlign <= roomBytes) return Status::success();
    return refused("it needs " + std::to_string(bytes + kWorkspaceAlign) + " bytes of scratch memory, " +
                   std::to_string(roomBytes) + " are planned");
  }

  std::size_t version_ = 0;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::pair<AttentionProblem, AttentionPass>, std::unique_ptr<Prepared>> prepared_;
};

/// The library of kernels that are not compiled at run time lies beside this one.
bool hasPrecompiled(void* library) {
  Dl_info found{};
  void* const known = dlsym(library, "cudnnGetVersion");
  if (known == nullptr || dladdr(known, &found) == 0 || found.dli_fname == nullptr) return true;
  const std::string path(found.dli_fname);
  return access((path.substr(0, path.rfind('/') + 1) + "libcudnn_engines_precompiled.so.9").c_str(), R_OK) ==
         0;
}

Status load() {
  std::string name;
  fe::cudnn_dlhandle = openShared("INTERNEVO_CUDNN_LIBRARY", kLibrary, &name);
  if (fe::cudnn_dlhandle == nullptr) {
    const char* const reason = dlerror();
    return refused(name + " cannot be opened: " + (reason == nullptr ? "no reason given" : reason) +
                   "; install cuDNN 9, or set INTERNEVO_CUDNN_LIBRARY to its path");
  }
  // Its small distribution has to be told that it is one.
  if (!hasPrecompiled(fe::cudnn_dlhandle)) setenv("CUDNN_LIB_CONFIG", "GRAPH_JIT_ONLY", 0);
  // cudnn-frontend takes these two from the environment alone. The runtime that it opens beside the one linked here is to be of the same
  // release; and a deterministic backward pass on Hopper is to sum in order, where it would else ask for sequence² of memory.
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(),
         0);
  setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 0);
  return Status::success();
}

}  // namespace

Status openCudnnAttention(std::unique_ptr<AttentionLibrary>* result) {
  static const Status loaded = load();
  INTERNEVO_RETURN_IF_ERROR(loaded);
  auto attention = std::make_unique<CudnnAttention>();
  INTERNEVO_RETURN_IF_ERROR(attention->start());
  *result = std::move(attention);
  return Status::success();
}

}  // namespace internevo::cuda
