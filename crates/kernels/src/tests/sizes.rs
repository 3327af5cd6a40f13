//! The sizes that packed types report.

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::random::Random;
use crate::simd::vector_unit::VectorUnit;
use crate::{
    ArgMaxRow, LinearRow, PackedGru, PackedLinear, PackedLstm, PackedRnn, PackedTreeInner,
    PackedTreeLeaf, ProjectionRow, Recurrence, StepRow, TreeChild, TreeInnerRow, TreeLeafRow,
};

const HIDDEN: [usize; 6] = [1, 8, 17, 64, 65, 130];

#[test]
fn of_cells() {
    let mut random = Random(1);
    for kind in Kind::ALL {
        for hidden in HIDDEN {
            let input = 3;
            let cell = Cell::random(&mut random, kind, input, hidden);
            for unit in VectorUnit::all_for_tests() {
                let what = format!("{unit:?} {kind:?} {hidden}");
                let packed = cell.pack(unit);
                assert_eq!(packed.isa(), unit.isa(), "{what}");
                assert_eq!((packed.input_size(), packed.hidden_size()), (input, hidden), "{what}");
                assert_eq!(packed.step_macs(), cell.r.len(), "{what}");
                assert_eq!(packed.projection_macs(), cell.w.len(), "{what}");

                let (phases, c_len) = match kind {
                    Kind::Lstm | Kind::PeepholeLstm => (1, hidden),
                    Kind::GruResetBefore => (2, 2 * hidden),
                    Kind::GruResetAfter | Kind::RnnTanh | Kind::RnnRelu => (1, 0),
                };
                assert_eq!((packed.phases(), packed.c_len()), (phases, c_len), "{what}");
                for phase in 0..phases {
                    let units = kind.groups(phase) * unit.lanes();
                    assert_eq!(packed.panels(phase), hidden.div_ceil(units), "{what}");
                }
                let panels: usize = (0..phases).map(|phase| packed.panels(phase)).sum();
                assert_eq!(packed.projection_panels(), panels, "{what}");
                let vectors = match kind {
                    Kind::GruResetAfter => 3,
                    _ => 4,
                };
                let row_len = panels * vectors * unit.lanes();
                assert_eq!(packed.projected_len(), row_len, "{what}");
                assert!(row_len >= kind.gates() * hidden, "{what}: space for every sum");

                // Weights of x and h and the bias, and at most a vector for every two of it more.
                let least = 4 * row_len * (input + hidden + 1);
                let most = least + 4 * row_len + 64 * 8;
                let bytes = packed.bytes();
                assert!((least..=most).contains(&bytes), "{what}: {bytes} of {least}..={most}");
            }
        }
    }
}

#[test]
fn of_trees_and_linear_layers() {
    let mut random = Random(2);
    let input = 3;
    for units in HIDDEN {
        let leaf = Leaf::random(&mut random, input, units);
        let inner = Inner::random(&mut random, units);
        let linear = Linear::random(&mut random, input, units);
        for unit in VectorUnit::all_for_tests() {
            let what = format!("{unit:?} {units}");
            let lanes = unit.lanes();
            let (leaf, inner, linear) = (leaf.pack(unit), inner.pack(unit), linear.pack(unit));
            assert_eq!([leaf.isa(), inner.isa(), linear.isa()], [unit.isa(); 3], "{what}");
            assert_eq!((linear.input_size(), linear.output_size()), (input, units), "{what}");
            let panels = units.div_ceil(lanes);
            assert_eq!([leaf.panels(), inner.panels()], [panels; 2], "{what}");
            assert_eq!(linear.panels(), units.div_ceil(4 * lanes), "{what}");

            let row = 4 * lanes;
            let of_linear = units.div_ceil(lanes).div_ceil(linear.panels()) * lanes;
            for (name, bytes, least) in [
                ("leaf", leaf.bytes(), panels * 3 * row * (input + 1)),
                ("inner", inner.bytes(), panels * 5 * row * (2 * units + 2)),
                ("linear", linear.bytes(), linear.panels() * 4 * of_linear * (input + 1)),
            ] {
                // Each matrix and each row ends with its cache line.
                let most = least + 64 * 4;
                assert!((least..=most).contains(&bytes), "{what} {name}: {bytes} of {least}");
            }
        }
    }
}

#[test]
fn types_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<PackedLstm>();
    shared::<PackedGru>();
    shared::<PackedRnn>();
    shared::<PackedTreeLeaf>();
    shared::<PackedTreeInner>();
    shared::<PackedLinear>();
    shared::<Box<dyn Recurrence>>();
    shared::<StepRow>();
    shared::<ProjectionRow>();
    shared::<TreeLeafRow>();
    shared::<TreeChild>();
    shared::<TreeInnerRow>();
    shared::<LinearRow>();
    shared::<ArgMaxRow>();
}

/// Weights do not belong in a log.
#[test]
fn debug_output_is_short() {
    let mut random = Random(3);
    let unit = VectorUnit::all_for_tests()[1];
    let mut texts: Vec<String> = Kind::ALL
        .map(|kind| format!("{:?}", Cell::random(&mut random, kind, 4, 4).pack(unit)))
        .into();
    texts.push(format!("{:?}", Leaf::random(&mut random, 4, 4).pack(unit)));
    texts.push(format!("{:?}", Inner::random(&mut random, 4).pack(unit)));
    texts.push(format!("{:?}", Linear::random(&mut random, 4, 4).pack(unit)));
    for text in texts {
        assert!(text.starts_with("Packed") && text.len() < 150, "{text}");
    }
}
