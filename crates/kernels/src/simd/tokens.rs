//! The proofs that this machine multiplies bfloat16 and bytes: one token for each extension of AVX-512, and one of AVX2.
//! The products made with these instructions are in `products/reduced/`.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

use super::avx2::Avx2;

/// Defines the token of an instruction of AVX-512.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $($feature:tt),*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name(());

        impl $name {
            /// The token, where the machine has the instructions.
            pub(crate) fn new() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&*).then_some(Self(()))
            }
        }
    };
}

token! {
    /// The proof that this machine has AVX512-BF16: pairs of bfloat16, `vdpbf16ps`.
    Avx512Bf16, "avx512f", "avx512bf16"
}

token! {
    /// The proof that this machine has AVX512-VNNI: unsigned bytes of inputs, signed bytes of weights,
    /// `vpdpbusd`.
    Avx512Vnni, "avx512f", "avx512vnni"
}

/// The proof that this machine multiplies signed numbers of 16 bits, `vpmaddwd` of AVX2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2Words(pub(crate) Avx2);

/// The proof that this process may use the tiles of AMX, for bfloat16 and bytes; with it, the
/// instruction that multiplies the bytes of a few rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiles(Avx512Vnni);

impl Tiles {
    /// The token, where the machine has the instructions and the system lets this process use them.
    pub(crate) fn new() -> Option<Self> {
        static ARE_THERE: OnceLock<bool> = OnceLock::new();
        let vectors = Avx512Vnni::new()?;
        ARE_THERE.get_or_init(|| has_tiles() && may_use_tiles()).then_some(Self(vectors))
    }

    /// The token of the instruction that multiplies the bytes of a few rows.
    #[inline(always)]
    pub(crate) fn vectors(self) -> Avx512Vnni {
        self.0
    }
}

/// Whether the processor has them and the system saves them.
fn has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const BF16_TILE_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    const TILE_CONFIG_AND_DATA: u64 = 3 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & BF16_TILE_INT8 != BF16_TILE_INT8 {
        return false;
    }
    // SAFETY: the system has turned on what the instruction belongs to.
    let saved = unsafe { saved_state() };
    is_x86_feature_detected!("avx512f") && saved & TILE_CONFIG_AND_DATA == TILE_CONFIG_AND_DATA
}

/// The parts of the processor's state that the system saves (XCR0).
#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: register 0 is there where the instruction is.
    unsafe { _xgetbv(0) }
}

/// Asks the system to let the threads of this process use tiles (Linux: `arch_prctl`, 5.16 and
/// later).
#[cfg(all(target_os = "linux", not(miri)))]
fn may_use_tiles() -> bool {
    const SYS_ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = SYS_ARCH_PRCTL;
    // SAFETY: a system call that changes nothing but a permission, and what `syscall` itself changes.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn may_use_tiles() -> bool {
    false
}
