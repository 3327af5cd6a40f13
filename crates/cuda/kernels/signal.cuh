// How the host learns of work that is done.
#pragma once
#include "portable.cuh"

// What the host reads of work that is done: `Status` of src/kernels/rows.rs.
struct Status {
  uint32_t failed;
  uint32_t end_count;
};

// Tells the host that all work up to a number is done, and what has failed in it. One thread calls it.
DEVICE void tell_host(uint64_t* counter, Status* status, uint32_t* failed, uint32_t end_count, uint64_t number) {
  *status = {*failed, end_count};
  *failed = 0;
  st_release_sys(counter, number);
}
