//! Images whose pixels are repeated, and channels that change places.

use std::ops::Range;

use rten_onnx::onnx::{AttributeProto, NodeProto};

use crate::error::ExecutorError;
use crate::operator::operator;
use crate::probe::ShapeGrowth;
use crate::sections::buffers::Buffers;
use crate::sections::constants::ints;
use crate::sections::parts::{MOVED_PART_ELEMENTS, even_parts, split};
use crate::sections::sorter::Sorter;
use crate::sections::tensor::ChannelsLast;
use crate::sections::windows::{resized, size};
use crate::threads::ExecutorThreads;

impl Sorter<'_> {
    /// How often a `Resize` repeats each row and each pixel of images; none if it does something else.
    pub(super) fn repeats(&self, node: &NodeProto) -> Option<[usize; 2]> {
        let text = |name: &str, default: &'static str| {
            let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some(name));
            attribute.and_then(|a: &AttributeProto| a.s.clone()).unwrap_or(default.to_owned())
        };
        let is_nearest = text("mode", "nearest") == "nearest"
            && text("coordinate_transformation_mode", "half_pixel") == "asymmetric"
            && text("nearest_mode", "round_prefer_floor") == "floor";
        let (_, scales) = self.constants.floats(node.input.get(2)?)?;
        let has_sizes = node.input.get(3).is_some_and(|sizes| !sizes.is_empty());
        let has_axes = node.attribute.iter().any(|a| a.name.as_deref() == Some("axes"));
        let whole = |scale: &f32| {
            (*scale >= 1.0 && scale.fract() == 0.0 && *scale <= 64.0).then_some(*scale as usize)
        };
        let whole: Vec<usize> = scales.iter().map(whole).collect::<Option<_>>()?;
        let is_plain = operator(node) == "Resize" && is_nearest && !has_sizes && !has_axes;
        match whole[..] {
            [1, 1, down, along] if is_plain => Some([down, along]),
            [1, 1, along] if is_plain => Some([1, along]),
            _ => None,
        }
    }

    /// A shuffle of channels, whose last operator is `node`: the tensor that is shuffled and the number of groups that its channels
    /// are in (`[n, c, h, w]` as `[n, groups, c / groups, h, w]`, these two axes swapped, and `[n, c, h, w]` again).
    pub(super) fn shuffle(&self, node: &NodeProto) -> Option<(String, usize)> {
        let y = node.output.first().filter(|_| operator(node) == "Reshape")?;
        let swapped = self.before_reshapes(y)?;
        let transpose = self.read_once(swapped).filter(|node| operator(node) == "Transpose")?;
        let parts = transpose.input.first()?;
        let x = self.before_reshapes(parts)?;
        let shape = |name: &str| self.probe.shapes(name).map(|shapes| &shapes[0][..]);
        let [images, channels, height, width] = *shape(x)? else { return None };
        let [first, groups, of_group, rows, columns] = *shape(parts)? else { return None };
        let dims = |name: &str| self.probe.growth(name).map(|growth| &growth.dims[..]);
        let (of_x, of_parts) = (dims(x)?, dims(parts)?);
        let fixed = [groups, of_group, channels];
        let fixed = ShapeGrowth::constant(&fixed).dims;
        let is_shuffle = ints(transpose, "perm", 0, 5)? == [0, 2, 1, 3, 4]
            && [first, groups * of_group, rows, columns] == [images, channels, height, width]
            && [&of_parts[1], &of_parts[2], &of_x[1]].into_iter().eq(&fixed)
            && (&of_x[0], &of_x[2..]) == (&of_parts[0], &of_parts[3..])
            && of_x == dims(y)?
            && self.probe.shapes(x) == self.probe.shapes(y)
            && self.is_channels_last(x);
        is_shuffle.then(|| (x.to_owned(), groups))
    }

    /// The tensor that becomes `name` by operators `Reshape`, at least one, each read once but for the last.
    fn before_reshapes<'b>(&'b self, name: &'b str) -> Option<&'b str> {
        let reshape =
            |name: &str| self.producers.get(name).filter(|node| operator(node) == "Reshape");
        let mut before = reshape(name)?.input.first()?;
        while let Some(node) = self.read_once(before).and_then(|_| reshape(before)) {
            before = node.input.first()?;
        }
        Some(before)
    }
}

impl ChannelsLast {
    /// Images with each row and each pixel as often as `repeats` says.
    pub(super) fn enlarged(
        &self,
        [down, along]: [usize; 2],
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Self, ExecutorError> {
        let fails = || ExecutorError::Run(format!("a resized tensor of {:?}", self.shape));
        let [height, width] = size(&self.shape).ok_or_else(fails)?;
        let channels = self.shape[1];
        let shape = resized(&self.shape, channels, [height * down, width * along]);
        let mut data = buffers.take(shape.iter().product());
        let (row_len, of_row) = (width * channels, width * along * channels);
        let rows = self.shape[0] * height;
        let run = |(of, y): (Range<usize>, &mut [f32])| {
            for (row, y) in of.zip(y.chunks_exact_mut((down * of_row).max(1))) {
                let x = &self.data[row * row_len..][..row_len];
                let (first, others) = y.split_at_mut(of_row);
                let pixels = x.chunks_exact(channels.max(1));
                for (x, to) in pixels.zip(first.chunks_exact_mut((along * channels).max(1))) {
                    to.chunks_exact_mut(channels).for_each(|to| to.copy_from_slice(x));
                }
                for other in others.chunks_exact_mut(of_row.max(1)) {
                    other.copy_from_slice(first);
                }
            }
            Ok(())
        };
        let worth = (data.len() / MOVED_PART_ELEMENTS).clamp(1, rows.max(1));
        threads.share(
            worth,
            |count| split(&mut data, even_parts(rows, count), down * of_row),
            run,
        )?;
        Ok(Self { shape, data })
    }

    /// Images whose channels, in `groups` groups, are taken from one group after the other.
    pub(super) fn shuffled(&self, groups: usize, buffers: &mut Buffers) -> Self {
        let channels = self.shape[1].max(1);
        let of_group = (channels / groups.max(1)).max(1);
        let mut data = buffers.take(self.data.len());
        let pixels = data.chunks_exact_mut(channels).zip(self.data.chunks_exact(channels));
        for (to, from) in pixels {
            for (group, from) in from.chunks_exact(of_group).enumerate() {
                for (at, x) in from.iter().enumerate() {
                    to[at * groups + group] = *x;
                }
            }
        }
        Self { shape: self.shape.clone(), data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_repeated_and_channels_shuffled() {
        let threads = ExecutorThreads::new();
        let mut buffers = Buffers::default();
        let image = ChannelsLast { shape: vec![1, 2, 1, 2], data: vec![1.0, 10.0, 2.0, 20.0] };
        let large = threads.pool().run(|| image.enlarged([2, 3], &mut buffers, &threads)).unwrap();
        assert_eq!(large.shape, [1, 2, 2, 6]);
        let row = [1.0, 10.0, 1.0, 10.0, 1.0, 10.0, 2.0, 20.0, 2.0, 20.0, 2.0, 20.0];
        assert_eq!(large.data, [row, row].concat());
        let image =
            ChannelsLast { shape: vec![1, 6, 1, 1], data: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0] };
        assert_eq!(image.shuffled(2, &mut buffers).data, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(image.shuffled(3, &mut buffers).data, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    }
}
