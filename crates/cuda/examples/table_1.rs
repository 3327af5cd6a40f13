//! Prints the kernels made for a cell whose registers are kept in a table.
//!
//! ```console
//! $ cargo run -p batchmaker-cuda --example table_1 > crates/cuda/table_1.cu
//! ```

use batchmaker_cuda::kernels::persistent::PersistentKernel;
use batchmaker_cuda::kernels::quantum::QuantumKernel;

fn main() {
    print!("{}", PersistentKernel::source(&PersistentKernel::of_table_1()));
    print!("{}", QuantumKernel::source(&QuantumKernel::of_table_1()));
}
