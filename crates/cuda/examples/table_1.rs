//! Prints the persistent kernels whose registers are kept in a table.
//!
//! ```console
//! $ cargo run -p batchmaker-cuda --example table_1 > crates/cuda/table_1.cu
//! ```

use batchmaker_cuda::kernels::persistent::PersistentKernel;

fn main() {
    print!("{}", PersistentKernel::source(&PersistentKernel::of_table_1()));
}
