// PyTorch on the same GPU, by tools/bench/peer/torch_llama.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace internevo::check {

struct PeerAnswer {
  int status = 0;  ///< of the script; 124 when its time was over, 3 when the GPU's memory did not do
  nlohmann::json result;
  std::string message;  ///< what it wrote last on stderr
};

class Peer {
 public:
  /// Looks for PyTorch in INTERNEVO_PYTHON, else python3. `small`: one without a GPU will do.
  explicit Peer(bool small);
  /// Why there is none; empty: there is one.
  const std::string& absent() const { return absent_; }
  const std::string& version() const { return version_; }
  PeerAnswer run(const std::vector<std::string>& arguments, double limitSeconds) const;

 private:
  std::string python_, absent_, version_, device_;
};

}  // namespace internevo::check
