// Built where there is no MPI.
#include "dist/communicator.h"
#include "dist/group.h"

namespace longshot {

bool has_mpi() { return false; }

bool threads_may_send() { return true; }

std::unique_ptr<Communicator> mpi_ranks(const Launch& launch) {
  fail_usage(
      "{} started {} processes, but this longshot was built without MPI: each of them would do all of the work. "
      "Install "
      "libopenmpi-dev and openmpi-bin, and build again; ./run does both.",
      launch.by, launch.size);
}

}  // namespace longshot
