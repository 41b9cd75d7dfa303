//! Draws from the distributions that resampling in closed form needs: normal, exponential, gamma, order statistics.
//!
//! Normals and exponentials come from a ziggurat of 256 layers (Marsaglia & Tsang 2000): one multiplication and one
//! comparison in 99 of 100 draws. Gammas come from a transformed normal that is kept or thrown back (Marsaglia & Tsang
//! 2000, "A simple method for generating gamma variables"), which is exact for every shape from 1 on. The `k`-th of `n`
//! sorted uniform numbers is G(k) / (G(k) + G(n + 1 - k)) of two gammas, and its neighbour is one exponential further
//! on: the spacings of sorted uniforms are exponentials divided by their sum.
//!
//! Limits: numbers have 53 random bits, so tails end about 8 deviations out. Logarithms and powers are the platform's:
//! another library of mathematics may change last digits.

use iowhy_stack::rng::Rng;
use std::sync::LazyLock;

/// Layers of a ziggurat.
const LAYERS: usize = 256;

/// A decreasing density cut into layers of equal area.
struct Ziggurat {
    /// Right ends of the layers, the lowest one first; the first is widened so that it has the area of its tail, too.
    edge: [f64; LAYERS + 1],
    /// The density there.
    height: [f64; LAYERS + 1],
}

impl Ziggurat {
    /// Layers of area `area`, the lowest of which ends at `end`.
    fn new(end: f64, area: f64, density: fn(f64) -> f64, inverse: fn(f64) -> f64) -> Ziggurat {
        let mut edge = [0.0; LAYERS + 1];
        edge[0] = area / density(end);
        edge[1] = end;
        for layer in 2..LAYERS {
            edge[layer] = inverse(density(edge[layer - 1]) + area / edge[layer - 1]);
        }
        let height = edge.map(density);
        Ziggurat { edge, height }
    }
}

/// Where the lowest layer of the normal ends, and the area of each (Marsaglia & Tsang 2000).
const NORMAL_END: f64 = 3.654_152_885_361_009;
const NORMAL_AREA: f64 = 0.004_928_673_233_99;
/// The same of the exponential.
const EXPONENTIAL_END: f64 = 7.697_117_470_131_05;
const EXPONENTIAL_AREA: f64 = 0.003_949_659_822_581_557;

static NORMAL: LazyLock<Ziggurat> = LazyLock::new(|| {
    Ziggurat::new(NORMAL_END, NORMAL_AREA, |x| (-0.5 * x * x).exp(), |height| (-2.0 * height.ln()).sqrt())
});

static EXPONENTIAL: LazyLock<Ziggurat> =
    LazyLock::new(|| Ziggurat::new(EXPONENTIAL_END, EXPONENTIAL_AREA, |x| (-x).exp(), |height| -height.ln()));

/// A uniform number between 0 and 1, never either.
#[inline]
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// Draws with the tables at hand.
pub(crate) struct Draws<'a> {
    rng: &'a mut Rng,
    normal: &'static Ziggurat,
    exponential: &'static Ziggurat,
}

impl<'a> Draws<'a> {
    /// Draws that come from `rng`.
    pub(crate) fn new(rng: &'a mut Rng) -> Draws<'a> {
        Draws { rng, normal: &NORMAL, exponential: &EXPONENTIAL }
    }

    /// A standard normal number.
    #[inline]
    pub(crate) fn normal(&mut self) -> f64 {
        loop {
            let bits = self.rng.next_u64();
            let layer = (bits & 255) as usize;
            // The upper 53 bits, as a number from -1 to 1; the eight for the layer are not among them.
            let position = ((bits >> 11) as f64 + 0.5) * (2.0 / (1u64 << 53) as f64) - 1.0;
            let x = position * self.normal.edge[layer];
            if x.abs() < self.normal.edge[layer + 1] {
                return x;
            }
            if let Some(x) = self.normal_edge(layer, x) {
                return x;
            }
        }
    }

    /// Decides beyond the inner part of a layer.
    #[cold]
    fn normal_edge(&mut self, layer: usize, x: f64) -> Option<f64> {
        if layer == 0 {
            // The tail, by two exponentials (Marsaglia 1964).
            loop {
                let beyond = -uniform(self.rng).ln() / NORMAL_END;
                if -2.0 * uniform(self.rng).ln() > beyond * beyond {
                    return Some((NORMAL_END + beyond).copysign(x));
                }
            }
        }
        let (low, high) = (self.normal.height[layer], self.normal.height[layer + 1]);
        let height = low + uniform(self.rng) * (high - low);
        (height < (-0.5 * x * x).exp()).then_some(x)
    }

    /// An exponential number of mean 1.
    #[inline]
    pub(crate) fn exponential(&mut self) -> f64 {
        // What lies beyond the lowest layer is an exponential again.
        let mut start = 0.0;
        loop {
            let bits = self.rng.next_u64();
            let layer = (bits & 255) as usize;
            let position = ((bits >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64);
            let x = position * self.exponential.edge[layer];
            if x < self.exponential.edge[layer + 1] {
                return start + x;
            }
            if layer == 0 {
                start += EXPONENTIAL_END;
                continue;
            }
            let (low, high) = (self.exponential.height[layer], self.exponential.height[layer + 1]);
            if low + uniform(self.rng) * (high - low) < (-x).exp() {
                return start + x;
            }
        }
    }

    /// A gamma number.
    #[inline]
    pub(crate) fn gamma(&mut self, shape: &Gamma) -> f64 {
        loop {
            let x = self.normal();
            let v = 1.0 + shape.c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            let u = uniform(self.rng);
            let square = x * x;
            // The first question is a bound of the second that costs no logarithm.
            if u < 1.0 - 0.0331 * square * square || u.ln() < 0.5 * square + shape.d * (1.0 - v + v.ln()) {
                return shape.d * v;
            }
        }
    }
}

/// The shape of a gamma distribution of scale 1.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Gamma {
    d: f64,
    c: f64,
}

impl Gamma {
    /// Of this shape, 1 or more.
    pub(crate) fn new(shape: usize) -> Gamma {
        assert!(shape >= 1, "the method is exact from shape 1 on");
        let d = shape as f64 - 1.0 / 3.0;
        Gamma { d, c: 1.0 / (9.0 * d).sqrt() }
    }
}

/// The `k`-th smallest of `n` uniform numbers, and its neighbour above.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Order {
    below: Gamma,
    /// The sum of all above, with the spacing.
    from: Gamma,
    /// The sum above the neighbour; `None` for the largest, which has no neighbour above.
    above: Option<Gamma>,
    n: f64,
    last: usize,
}

impl Order {
    /// Of `n` numbers, the `k`-th, counted from 1.
    pub(crate) fn new(k: usize, n: usize) -> Order {
        assert!((1..=n).contains(&k), "there are n order statistics");
        let from = Gamma::new(n + 1 - k);
        Order { below: Gamma::new(k), from, above: (k < n).then(|| Gamma::new(n - k)), n: n as f64, last: n - 1 }
    }

    /// Which of `n` sorted values a resample of them has as its `k`-th smallest.
    #[inline]
    pub(crate) fn draw_one(&self, draws: &mut Draws<'_>) -> usize {
        let below = draws.gamma(&self.below);
        let above = draws.gamma(&self.from);
        ((below * (self.n / (below + above))) as usize).min(self.last)
    }

    /// Which of `n` sorted values a resample of them has as its `k`-th and next smallest.
    #[inline]
    pub(crate) fn draw(&self, draws: &mut Draws<'_>) -> (usize, usize) {
        let below = draws.gamma(&self.below);
        let gap = draws.exponential();
        let above = self.above.map_or(0.0, |shape| draws.gamma(&shape));
        let scale = self.n / (below + gap + above);
        // Rounding could reach n; the cast towards zero is the floor.
        (((below * scale) as usize).min(self.last), (((below + gap) * scale) as usize).min(self.last))
    }
}

/// Indices with replacement, two from each random number.
#[inline]
pub(crate) fn indices(rng: &mut Rng, bound: usize, count: usize, mut each: impl FnMut(usize)) {
    let bound = u64::from(u32::try_from(bound).expect("slices of more than 2^32 values are not resampled"));
    // Lemire's multiply-shift on 32 bits, without bias.
    let threshold = (1u64 << 32) % bound;
    let mut left = count;
    while left > 0 {
        let bits = rng.next_u64();
        for half in [bits & 0xffff_ffff, bits >> 32] {
            let wide = half * bound;
            if left > 0 && (wide & 0xffff_ffff) >= threshold {
                each((wide >> 32) as usize);
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, Exp, Gamma as GammaLaw, Normal};

    /// Largest distance between the draws and the law, times the root of their number.
    fn distance(mut draws: Vec<f64>, law: &impl ContinuousCDF<f64, f64>) -> f64 {
        draws.sort_unstable_by(f64::total_cmp);
        let n = draws.len() as f64;
        let far = draws.iter().enumerate().map(|(i, x)| {
            let p = law.cdf(*x);
            (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
        });
        far.fold(0.0, f64::max) * n.sqrt()
    }

    #[test]
    fn draws_follow_their_laws() {
        // Kolmogorov: sqrt(n) D is below 1.95 in 999 of 1,000 cases; the seed is fixed.
        const N: usize = 40_000;
        let mut rng = Rng::stream(3, "draws");
        let mut draws = Draws::new(&mut rng);
        let normals: Vec<f64> = (0..N).map(|_| draws.normal()).collect();
        assert!(distance(normals, &Normal::new(0.0, 1.0).expect("a law")) < 1.95);
        let exponentials: Vec<f64> = (0..N).map(|_| draws.exponential()).collect();
        assert!(distance(exponentials, &Exp::new(1.0).expect("a law")) < 1.95);
        for shape in [1, 2, 7, 500] {
            let law = GammaLaw::new(shape as f64, 1.0).expect("a law");
            let gamma = Gamma::new(shape);
            let far = distance((0..N).map(|_| draws.gamma(&gamma)).collect(), &law);
            assert!(far < 1.95, "shape {shape}: {far}");
        }
    }

    #[test]
    fn tails_are_as_heavy_as_they_should_be() {
        // Beyond the lowest layer: 2.58 in 10,000 normals, 4.54 in 10,000 exponentials.
        const N: usize = 400_000;
        let mut rng = Rng::stream(5, "tails");
        let mut draws = Draws::new(&mut rng);
        let beyond = (0..N).filter(|_| draws.normal().abs() > NORMAL_END).count() as f64;
        assert!((beyond - 103.2).abs() < 35.0, "{beyond}");
        let beyond = (0..N).filter(|_| draws.exponential() > EXPONENTIAL_END).count() as f64;
        assert!((beyond - 181.6).abs() < 45.0, "{beyond}");
    }

    #[test]
    fn order_statistics_are_betas_and_neighbours_follow() {
        const DRAWS: usize = 20_000;
        let n = 1_000_000;
        let mut rng = Rng::stream(7, "orders");
        let mut draws = Draws::new(&mut rng);
        for k in [1, 100, 500_000, 999_999, 1_000_000] {
            let order = Order::new(k, n);
            let pairs: Vec<(usize, usize)> = (0..DRAWS).map(|_| order.draw(&mut draws)).collect();
            assert!(pairs.iter().all(|(low, high)| low <= high && *high < n));
            // A cell is accurate to half its width; rounding down costs the outermost a twelfth more.
            let lower: Vec<f64> = pairs.iter().map(|(low, _)| *low as f64 + 0.5).collect();
            let mean = lower.iter().sum::<f64>() / DRAWS as f64;
            let share = k as f64 / (n + 1) as f64;
            let deviation = (share * (1.0 - share) * n as f64).sqrt();
            let error = 4.0 * deviation / (DRAWS as f64).sqrt() + 0.09;
            assert!((mean - share * n as f64).abs() < error, "k {k}: {mean}");
            let squares = lower.iter().map(|low| (low - mean).powi(2)).sum::<f64>() / DRAWS as f64;
            assert!((squares.sqrt() / deviation - 1.0).abs() < 0.06, "k {k}: {squares}");
            if k < n {
                let gap = pairs.iter().map(|(low, high)| (high - low) as f64).sum::<f64>() / DRAWS as f64;
                // At the ends rounding down shows: the sum of exp(-j) (1 + j) less that of exp(-j).
                let expected = if k == 1 || k == n - 1 { 0.9207 } else { 1.0 };
                assert!((gap - expected).abs() < 0.03, "k {k}: the mean spacing is {gap} cells");
            }
        }
    }

    #[test]
    fn indices_are_even() {
        let mut rng = Rng::stream(9, "indices");
        let mut counts = [0u32; 7];
        indices(&mut rng, 7, 70_001, |index| counts[index] += 1);
        assert_eq!(counts.iter().sum::<u32>(), 70_001);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
