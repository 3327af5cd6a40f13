//! Copied rows of a table.

use super::random::{Random, bits};
use crate::{KernelError, copy_embeddings};

#[test]
fn rows_are_copied_by_id() {
    let mut random = Random(1);
    for (rows, width, count) in [(1, 1, 1), (5, 3, 8), (7, 17, 20), (4, 2, 0), (300, 64, 9)] {
        let mut table = random.vec(rows * width, 1.0);
        // Copied, not computed: the bits are the table's.
        table[0] = f32::from_bits(1);
        let mut ids: Vec<i64> = (0..count).map(|_| random.below(rows) as i64).collect();
        if let [first, .., last] = &mut ids[..] {
            (*first, *last) = (rows as i64 - 1, 0);
        }
        let mut out = vec![f32::NAN; count * width];
        assert_eq!(copy_embeddings(&table, width, &ids, &mut out), Ok(()));
        for (place, &id) in ids.iter().enumerate() {
            let (actual, expected) = (place * width, id as usize * width);
            assert_eq!(
                bits(&out[actual..][..width]),
                bits(&table[expected..][..width]),
                "id {id} of {rows} rows at place {place}"
            );
        }
    }
}

#[test]
fn what_is_not_in_the_table_is_refused_and_nothing_written() {
    let table = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    for id in [3, -1, i64::MAX, i64::MIN, 1 << 32] {
        let mut out = [9.0; 4];
        let refused = copy_embeddings(&table, 2, &[0, id], &mut out);
        assert_eq!(refused, Err(KernelError::Id { id, rows: 3 }));
        assert_eq!(out, [9.0; 4], "id {id}");
    }
    let mut out = [9.0; 4];
    let length = |tensor, expected, actual| Err(KernelError::Length { tensor, expected, actual });
    assert_eq!(copy_embeddings(&table, 2, &[0], &mut out), length("out", 2, 4));
    assert_eq!(copy_embeddings(&table, 2, &[0, 1, 2], &mut out), length("out", 6, 4));
    assert_eq!(copy_embeddings(&table[1..], 2, &[0, 1], &mut out), length("table", 4, 5));
    assert_eq!(copy_embeddings(&[], 2, &[0, 0], &mut out), Err(KernelError::Id { id: 0, rows: 0 }));
    assert_eq!(out, [9.0; 4]);
}

#[test]
fn a_table_without_columns_has_no_rows() {
    assert_eq!(copy_embeddings(&[], 0, &[], &mut []), Ok(()));
    assert_eq!(copy_embeddings(&[], 0, &[0], &mut []), Err(KernelError::Id { id: 0, rows: 0 }));
    let refused = Err(KernelError::Length { tensor: "table", expected: 0, actual: 1 });
    assert_eq!(copy_embeddings(&[1.0], 0, &[0], &mut []), refused);
}
