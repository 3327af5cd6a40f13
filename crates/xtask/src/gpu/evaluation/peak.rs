//! The peak throughput of a GPU in f32, for Figure 13.

use std::process::Command;

/// Operations a second of a GPU, a multiply-add being two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peak {
    pub(super) flops: f64,
    /// Where the figure is from.
    pub(super) source: String,
}

/// A GPU by the description of the device: `NVIDIA H200, sm_90, 132 multiprocessors`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gpu<'a> {
    name: &'a str,
    /// 90 of sm_90.
    architecture: u32,
    multiprocessors: u32,
}

impl<'a> Gpu<'a> {
    fn parse(description: &'a str) -> Option<Self> {
        let mut parts = description.rsplitn(3, ", ");
        let multiprocessors = parts.next()?.strip_suffix(" multiprocessors")?.parse().ok()?;
        let architecture = parts.next()?.strip_prefix("sm_")?.parse().ok()?;
        Some(Self { name: parts.next()?, architecture, multiprocessors })
    }

    /// Lanes of a multiprocessor for f32 (CUDA C++ programming guide, "Arithmetic instructions").
    fn lanes(&self) -> u32 {
        match self.architecture {
            60 | 70..=80 => 64,
            _ => 128,
        }
    }
}

/// Peaks in f32 by NVIDIA's data sheets, by what a GPU's name holds; the first that fits counts.
const DATA_SHEETS: [(&str, f64); 6] = [
    ("H200", 67e12),
    ("H100 PCIe", 51e12),
    ("H100 NVL", 60e12),
    ("H100", 67e12),
    ("A100", 19.5e12),
    ("V100", 15.7e12),
];

/// The peak of a GPU: multiprocessors, lanes and the highest clock in MHz, if the driver's tool tells it; else that of its data sheet.
fn of(description: &str, clock_mhz: Option<f64>) -> Option<Peak> {
    let gpu = Gpu::parse(description)?;
    let (multiprocessors, lanes) = (gpu.multiprocessors, gpu.lanes());
    if let Some(clock_mhz) = clock_mhz {
        let flops = f64::from(multiprocessors * lanes * 2) * clock_mhz * 1e6;
        let source = format!(
            "{multiprocessors} multiprocessors x {lanes} lanes x 2 x {clock_mhz} MHz, the highest clock"
        );
        return Some(Peak { flops, source });
    }
    let (name, flops) = DATA_SHEETS.into_iter().find(|(name, _)| gpu.name.contains(name))?;
    Some(Peak { flops, source: format!("NVIDIA's data sheet of the {name}") })
}

/// The peak of the GPU with a number, which the device describes so. None if neither its clock nor its data sheet is known.
pub(super) fn measure(description: &str, gpu: usize) -> Option<Peak> {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]);
    let output = command.args(["-i", &gpu.to_string()]).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    of(description, text.and_then(|text| clock(&String::from_utf8_lossy(&text))))
}

/// The clock in MHz that `nvidia-smi` prints.
fn clock(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|clock| *clock > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_of_the_clock_or_the_data_sheet() {
        let h200 = "NVIDIA H200, sm_90, 132 multiprocessors";
        let by_clock = of(h200, clock("1980\n")).unwrap();
        // The data sheet says 67.
        assert!((by_clock.flops / 1e12 - 66.9).abs() < 0.05, "{by_clock:?}");
        assert!(by_clock.source.contains("1980 MHz"));
        let by_sheet = of(h200, clock("[N/A]")).unwrap();
        assert_eq!((by_sheet.flops, by_sheet.source.contains("data sheet")), (67e12, true));
        // 80 multiprocessors at 1,335 MHz are the paper's 13.67 TFLOP/s.
        let titan = of("NVIDIA TITAN V, sm_70, 80 multiprocessors", Some(1335.0)).unwrap();
        assert!((titan.flops / crate::grnn::TITAN_V_FLOPS - 1.0).abs() < 1e-3, "{titan:?}");
        let pcie = of("NVIDIA H100 PCIe, sm_90, 114 multiprocessors", None).unwrap();
        assert_eq!(pcie.flops, 51e12);
    }

    #[test]
    fn an_unknown_gpu_has_no_peak() {
        assert_eq!(of("NVIDIA X1, sm_200, 10 multiprocessors", None), None);
        assert_eq!(of("a GPU", Some(1000.0)), None);
    }
}
