// PyTorch on the same GPU, by the scripts of tools/bench/peer.
#pragma once

#include <string>
#include <vector>

#include "cuda/check/case.h"

namespace internevo::check {

struct PeerAnswer {
  int status = 0;  ///< of the script; kTimedOut when its time was over, 3 when the GPU's memory did not do
  Json result;
  std::string message;  ///< what it wrote last on stderr
};

class Peer {
 public:
  /// Looks for PyTorch in INTERNEVO_PYTHON, else python3. `small`: one without a GPU will do.
  Peer(bool small, const std::string& script);
  /// Why there is none; empty: there is one.
  const std::string& absent() const { return absent_; }
  const std::string& version() const { return version_; }
  PeerAnswer run(const std::vector<std::string>& arguments, double limitSeconds) const;

 private:
  std::string python_, script_, absent_, version_, device_;
};

}  // namespace internevo::check
