// Neighbouring ranks as a world of their own. What they tell each other meets neither the messages of other groups nor those
// of the whole world, which another thread may send meanwhile.
#pragma once
#include <memory>

#include "dist/communicator.h"

namespace longshot {

// Usage error where groups of `size` cannot be made of the ranks, or MPI serves one thread of a rank at a time. `option` asks
// for them.
void require_groups(const Communicator& world, int size, std::string_view option = "--ranks-per-model");

// This rank's group: size * k .. size * k + size - 1 of the world, which must outlive it. A group of one is alone().
// Its messages have tags below 16000. Has the world's patience; host() also says which rank of the world it is.
std::unique_ptr<Communicator> group_of(Communicator& world, int size);

// Whether threads of one rank may send at once, as far as MPI goes. In mpi.cc, or without_mpi.cc.
bool threads_may_send();

}  // namespace longshot
