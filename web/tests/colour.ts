// Colours as colour-blind eyes see them, and how far apart they are. Simulation: Machado, Oliveira and Fernandes 2009, at
// full severity, in linear RGB; distance: CIEDE2000 (Sharma, Wu and Dalal 2005), in CIELAB under D65.

type Triple = [number, number, number];

const MATRICES = {
  none: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
} as const;
export type Eyes = keyof typeof MATRICES;

const linear = (hex: string): Triple =>
  [1, 3, 5].map((from) => {
    const share = Number.parseInt(hex.slice(from, from + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as Triple;

function times(matrix: readonly number[], [x, y, z]: Triple): Triple {
  const row = (of: number) => (matrix[of] ?? 0) * x + (matrix[of + 1] ?? 0) * y + (matrix[of + 2] ?? 0) * z;
  return [row(0), row(3), row(6)];
}

/** CIELAB of a colour (#rrggbb) to these eyes. */
export function lab(hex: string, eyes: Eyes): Triple {
  const seen = times(MATRICES[eyes], linear(hex)).map((of) => Math.min(1, Math.max(0, of))) as Triple;
  const [x, y, z] = times(
    [0.4124564, 0.3575761, 0.1804375, 0.2126729, 0.7151522, 0.072175, 0.0193339, 0.119192, 0.9503041],
    seen,
  );
  const f = (of: number) => (of > 216 / 24389 ? Math.cbrt(of) : ((24389 / 27) * of + 16) / 116);
  const [fx, fy, fz] = [f(x / 0.95047), f(y), f(z / 1.08883)];
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}

/** Distance of two colours in CIELAB by CIEDE2000. */
export function deltaE([l1, a1, b1]: Triple, [l2, a2, b2]: Triple): number {
  const { hypot, atan2, cos, sin, sqrt, exp, abs, PI } = Math;
  const deg = PI / 180;
  const c = (hypot(a1, b1) + hypot(a2, b2)) / 2;
  const g = 0.5 * (1 - sqrt(c ** 7 / (c ** 7 + 25 ** 7)));
  const [p1, p2] = [a1 * (1 + g), a2 * (1 + g)];
  const [c1, c2] = [hypot(p1, b1), hypot(p2, b2)];
  const hue = (a: number, b: number) => (a === 0 && b === 0 ? 0 : (atan2(b, a) / deg + 360) % 360);
  const [h1, h2] = [hue(p1, b1), hue(p2, b2)];
  let dh = c1 * c2 === 0 ? 0 : h2 - h1;
  if (dh > 180) dh -= 360;
  if (dh < -180) dh += 360;
  const dH = 2 * sqrt(c1 * c2) * sin((dh / 2) * deg);
  const [l, cm] = [(l1 + l2) / 2, (c1 + c2) / 2];
  let h = h1 + h2;
  if (c1 * c2 !== 0) h = abs(h1 - h2) <= 180 ? h / 2 : h < 360 ? (h + 360) / 2 : (h - 360) / 2;
  const t =
    1 -
    0.17 * cos((h - 30) * deg) +
    0.24 * cos(2 * h * deg) +
    0.32 * cos((3 * h + 6) * deg) -
    0.2 * cos((4 * h - 63) * deg);
  const sl = 1 + (0.015 * (l - 50) ** 2) / sqrt(20 + (l - 50) ** 2);
  const sc = 1 + 0.045 * cm;
  const sh = 1 + 0.015 * cm * t;
  const rt = -2 * sqrt(cm ** 7 / (cm ** 7 + 25 ** 7)) * sin(60 * exp(-(((h - 275) / 25) ** 2)) * deg);
  const [dl, dc, dhue] = [(l2 - l1) / sl, (c2 - c1) / sc, dH / sh];
  return sqrt(dl * dl + dc * dc + dhue * dhue + rt * dc * dhue);
}

/** Contrast of two colours (WCAG 2.2). */
export function contrast(one: string, other: string): number {
  const light = (hex: string) => {
    const [r, g, b] = linear(hex);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [light(one), light(other)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}
