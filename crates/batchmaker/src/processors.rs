//! Which processors compute: the cores of this machine, or GPUs.

use std::fmt;
use std::str::FromStr;

use batchmaker_cuda::{CudaConfig, CudaDevice};
use batchmaker_device::DeviceError;

/// The processors that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// The cores.
    #[default]
    Cpu,
    /// All NVIDIA GPUs that run the kernels, the cores if there are none.
    Auto,
    /// NVIDIA GPUs, by their numbers; all, where there are none.
    Cuda(Vec<usize>),
}

/// The kernels of recurrent cells on GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuKernels {
    /// Those that all cells share.
    #[default]
    Shared,
    /// Kernels that are made for a cell, whose weights stay on the chip for all steps of a task, where they fit (GRNN).
    Persistent,
    /// The same, in launches that run task after task.
    Quanta,
}

impl GpuKernels {
    const NAMES: [(&str, Self); 3] =
        [("shared", Self::Shared), ("persistent", Self::Persistent), ("quanta", Self::Quanta)];
}

impl FromStr for GpuKernels {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let named = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, kernels)| kernels).ok_or("expected shared, persistent or quanta")
    }
}

impl fmt::Display for GpuKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.into_iter().find(|(_, kernels)| kernels == self);
        f.pad(named.map_or("", |(name, _)| name))
    }
}

/// GPUs, by their numbers, and their kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpus {
    numbers: u64,
    pub(crate) kernels: GpuKernels,
}

impl Gpus {
    /// The most GPUs of an engine.
    const MAX: usize = 64;

    /// Their numbers.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..Self::MAX).filter(move |&number| self.numbers >> number & 1 == 1)
    }

    /// The number of GPUs.
    pub fn count(self) -> u16 {
        self.numbers.count_ones() as u16
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers().map(|number| number.to_string()).collect();
        write!(f, "GPU{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    }
}

impl Processors {
    /// In place of [`Self::Auto`], the processors that it stands for on this machine; and, where GPUs are there that cannot be used, why not.
    pub fn decided(self) -> (Self, Option<DeviceError>) {
        if self != Self::Auto {
            return (self, None);
        }
        let there = CudaDevice::gpus().unwrap_or(0).min(Gpus::MAX);
        let (mut usable, mut refused) = (Vec::new(), None);
        for number in 0..there {
            match CudaDevice::new(CudaConfig { gpus: vec![number], ..CudaConfig::default() }) {
                Ok(_) => usable.push(number),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let decided = if usable.is_empty() { Self::Cpu } else { Self::Cuda(usable) };
        (decided, refused)
    }

    /// The GPUs of this machine that are wanted; none for the cores.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where GPUs are wanted that are not there.
    pub fn gpus(&self) -> Result<Option<Gpus>, DeviceError> {
        let of = |numbers: &mut dyn Iterator<Item = usize>| {
            let numbers = numbers.fold(0, |gpus, number| gpus | 1 << number);
            Gpus { numbers, kernels: GpuKernels::default() }
        };
        let all = |there: usize| of(&mut (0..there.min(Gpus::MAX)));
        match self {
            Self::Cpu => Ok(None),
            Self::Auto => self.clone().decided().0.gpus(),
            Self::Cuda(wanted) => {
                let there = CudaDevice::gpus()?;
                let missing = wanted.iter().find(|&&number| number >= there);
                if let Some(number) = missing {
                    let reason = format!("there is no GPU {number}: the machine has {there}");
                    return Err(DeviceError::Resources(reason));
                }
                match wanted.as_slice() {
                    [] if there == 0 => Err(DeviceError::Resources("there is no GPU".to_owned())),
                    [] => Ok(Some(all(there))),
                    wanted => Ok(Some(of(&mut wanted.iter().copied()))),
                }
            }
        }
    }
}

impl FromStr for Processors {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected cpu, cuda, cuda:0,1 (numbers of GPUs below 64) or auto";
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cuda" => Ok(Self::Cuda(Vec::new())),
            Some(("cuda", numbers)) => {
                let number = |text: &str| text.parse().ok().filter(|&number| number < Gpus::MAX);
                let numbers: Option<Vec<usize>> = numbers.split(',').map(number).collect();
                numbers.map(Self::Cuda).ok_or(EXPECTED)
            }
            _ => Err(EXPECTED),
        }
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Auto => f.write_str("auto"),
            Self::Cuda(numbers) if numbers.is_empty() => f.write_str("cuda"),
            Self::Cuda(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named() {
        for text in ["cpu", "auto", "cuda", "cuda:0", "cuda:3,1"] {
            let processors: Processors = text.parse().unwrap();
            assert_eq!(processors.to_string(), text);
        }
        for text in ["gpu", "cuda:", "cuda:x", "cuda:64", "cpu:0"] {
            assert!(text.parse::<Processors>().is_err(), "{text}");
        }
        assert_eq!(Processors::Cpu.gpus(), Ok(None));
        assert_eq!(Processors::Cuda(vec![3]).decided(), (Processors::Cuda(vec![3]), None));
        let gpus = |numbers| Gpus { numbers, kernels: GpuKernels::Shared };
        assert_eq!(gpus(0b1001).numbers().collect::<Vec<_>>(), [0, 3]);
        assert_eq!([gpus(1), gpus(5)].map(|of| of.to_string()), ["GPU 0", "GPUs 0, 2"]);
        for text in ["shared", "persistent", "quanta"] {
            assert_eq!(text.parse::<GpuKernels>().unwrap().to_string(), text);
        }
        assert!("resident".parse::<GpuKernels>().is_err());
    }
}
