# Finds NVIDIA's libraries and sets the paths of this bundle. Source it:
#   . FOLDER/env.sh [PYTHON]
# PYTHON (else INTERNEVO_PYTHON, else python3) is one whose environment has NVIDIA's wheels, as PyTorch brings them. A shell other than
# bash or zsh sets INTERNEVO_BUNDLE to the folder first. What is missing is said on stderr, with what will not run.
# Nothing but the shell and Python is called: a node may have little more.

if [ -n "${BASH_SOURCE:-}" ]; then
  case $BASH_SOURCE in */*) INTERNEVO_BUNDLE=${BASH_SOURCE%/*} ;; *) INTERNEVO_BUNDLE=. ;; esac
elif [ -n "${ZSH_VERSION:-}" ]; then
  INTERNEVO_BUNDLE=${0%/*}
fi
if [ ! -r "${INTERNEVO_BUNDLE:-}/bundle.json" ]; then
  echo "internevo: set INTERNEVO_BUNDLE to the bundle's folder before env.sh is sourced" >&2
  return 2 2>/dev/null || exit 2
fi
INTERNEVO_BUNDLE=$(cd "$INTERNEVO_BUNDLE" && pwd)
export INTERNEVO_BUNDLE

# Some shells pass a script's own arguments on to what it sources.
case ${1:-} in
  python* | */python*) internevo_python=$1 ;;
  *) internevo_python=${INTERNEVO_PYTHON:-python3} ;;
esac
internevo_folders=
if internevo_sites=$("$internevo_python" -c 'import sys; print("\n".join(p for p in sys.path if p))' 2>/dev/null); then
  export INTERNEVO_PYTHON="$internevo_python"
  internevo_ifs=$IFS
  IFS='
'
  for internevo_site in $internevo_sites; do
    for internevo_each in "$internevo_site"/nvidia/*/lib; do
      [ -d "$internevo_each" ] && internevo_folders="$internevo_folders:$internevo_each"
    done
  done
  IFS=$internevo_ifs
else
  echo "internevo: no $internevo_python here: NVIDIA's libraries are looked for in the system only, and PyTorch is not compared" >&2
fi
internevo_folders="$internevo_folders:${LD_LIBRARY_PATH:-}:${CUDA_HOME:+$CUDA_HOME/lib64}:/usr/local/cuda/lib64:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64"

# internevo_find NAME WHAT: adds the first folder that has the file; says what does without it.
internevo_missing=
internevo_find() {
  internevo_ifs=$IFS
  IFS=:
  for internevo_each in $internevo_folders; do
    if [ -n "$internevo_each" ] && [ -e "$internevo_each/$1" ]; then
      IFS=$internevo_ifs
      case $internevo_each in
        /lib/* | /usr/lib/* | /usr/lib64) ;; # the loader looks there by itself
        *) case ":$internevo_paths:" in *":$internevo_each:"*) ;; *) internevo_paths="$internevo_paths:$internevo_each" ;; esac ;;
      esac
      echo "internevo: $1 in $internevo_each" >&2
      return 0
    fi
  done
  IFS=$internevo_ifs
  internevo_missing="$internevo_missing $1"
  echo "internevo: $1 is not found: $2" >&2
}
internevo_paths=
internevo_find libcuda.so.1 "there is no NVIDIA driver here, and nothing runs on a GPU"
internevo_find @CUBLASLT@ "nothing runs on a GPU; install nvidia-cublas of CUDA @CUDA@ into that Python, or a CUDA @CUDA@ toolkit"
internevo_find libcudnn.so.9 "attention is computed by this bundle's own kernels alone"
internevo_find libcudart.so.@CUDA@ "cuDNN's attention cannot be used"
internevo_find libnvrtc.so.@CUDA@ "cuDNN's attention cannot be used"
internevo_find libnccl.so.2 "one GPU at a time; several need NCCL"

LD_LIBRARY_PATH=${internevo_paths#:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
[ -z "$LD_LIBRARY_PATH" ] && unset LD_LIBRARY_PATH || export LD_LIBRARY_PATH
case ":${PATH:-}:" in
  *":$INTERNEVO_BUNDLE/bin:"*) ;;
  *) export PATH="$INTERNEVO_BUNDLE/bin:$INTERNEVO_BUNDLE/mpi/bin:${PATH:-/usr/bin:/bin}" ;;
esac
export OPAL_PREFIX="$INTERNEVO_BUNDLE/mpi"
# Messages of MPI are words of agreement and checkpoints; parameters and gradients go through NCCL. TCP and shared memory do, anywhere.
export OMPI_MCA_pml="${OMPI_MCA_pml:-ob1}" OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader,tcp}"
export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
# Fabrics that nobody uses are not opened, and what UCX would say does not come between a program's lines of JSON.
export OMPI_MCA_osc="${OMPI_MCA_osc:-^ucx}" OMPI_MCA_mtl="${OMPI_MCA_mtl:-^ofi}" UCX_LOG_FILE="${UCX_LOG_FILE:-stderr}"
# Without ssh there is this host only, and Open MPI would rather not start than know that.
command -v ssh > /dev/null 2>&1 || export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
[ -z "$internevo_missing" ] || echo "internevo: not found:$internevo_missing" >&2
unset internevo_python internevo_folders internevo_sites internevo_site internevo_each internevo_ifs internevo_paths internevo_missing
unset -f internevo_find
