//! The stack of threads that run kernels.

/// Bytes of address space for the stack of a thread that runs kernels: compiled without optimisation, some overflow the usual 2 MiB.
pub const KERNEL_STACK_BYTES: usize = 64 << 20;
