// Made from schema/*.json by types.mjs: `npm run types`.

/** `iowhy.report/1` */
export interface Report {
  schema: "iowhy.report/1";
  version: string;
  title: string;
  headline: {
    verdict: "regression" | "improvement" | "same" | "inconclusive" | "none";
    sentence: string;
    why: string;
    first: {
      title: string;
      factor: number | null;
      lines: {
        name: "Cause" | "Proof" | "Experiment" | "Evidence" | "Refuted" | "Assumed" | "Only difference" | "Differences" | "At depth" | "What to do";
        text: string;
      }[];
    };
  };
  explanation: Explanation | null;
  comparison: Comparison | null;
  matrix: {
    layers: string[];
    rows: {
      name: string;
      origin: "measured" | "shared" | "rest";
      finding: number | null;
      ns: number[];
      half_ns: (number | null)[];
      sum_ns: number;
      sum_half_ns: number | null;
    }[];
    ns: number[];
    half_ns: (number | null)[];
    total_ns: number;
    total_half_ns: number | null;
    level: number;
    unit: "ns_per_operation" | "ns" | "ns_per_page" | "ns_per_request";
    note: string;
  } | null;
  sides: {
    label: string;
    simulated: boolean;
    command: string | null;
    facts: {
      key: string;
      value: string;
    }[];
    runs: {
      seed: number;
      time_per_operation_ns: number;
      rate_bytes_per_s: number;
      operations: number;
    }[];
    modes: {
      centre_ns: number;
      runs: number;
    }[];
    latency: {
      op: "read" | "write" | "sync";
      n: number;
      ns: number[];
      share: number[];
      low: number[];
      high: number[];
    }[];
    request_sizes: {
      dir: "read" | "write";
      bytes: number[];
      count: number[];
    }[];
    stacks: {
      frames: string[];
      ns: number;
      count: number;
    }[];
    timeline: {
      seed: number;
      elapsed_ns: number;
      nr_events: number;
      files: {
        name: string;
        bytes: number;
      }[];
      overview: {
        slice_ns: number;
        depth_min: number[];
        depth_max: number[];
        read_bytes: number[];
        write_bytes: number[];
        calls: number[];
        starved: number[];
        done_bytes: number[];
        done_calls: number[];
      };
      pyramid: {
        bin_ns: number;
        calls: {
          least: number[];
          most: number[];
          share: number[];
        };
        pages: {
          hit: number[];
          missed: number[];
          added: number[];
          removed: number[];
        };
        windows: {
          nr: number[];
          pages: number[];
        };
        plug: {
          least: number[];
          most: number[];
          share: number[];
        };
        queue: {
          least: number[];
          most: number[];
          share: number[];
        };
        device: {
          least: number[];
          most: number[];
          share: number[];
        };
        starved: number[];
      };
      stalls: {
        count: number;
        ns: number;
      };
      course: {
        calls: number;
        points: {
          start: number[];
          took: number[];
        };
        heat: {
          nr: number[];
          start: number[];
          edge_ns: number[];
          column: number[];
          bin: number[];
          count: number[];
        } | null;
        typical: {
          nr: number;
          row: number | null;
          start_ns: number;
          took_ns: number;
        } | null;
        onset: {
          at: {
            nr: number;
            row: number | null;
            start_ns: number;
            took_ns: number;
          };
          before_ns: number;
          after_ns: number;
        } | null;
      };
      detail: {
        from_ns: number;
        to_ns: number;
        why: "start" | "first difference" | "worst" | "onset" | "typical" | "asked";
      }[];
      first_difference: number | null;
      calls: {
        nr: number[];
        start: number[];
        end: number[];
        op: number[];
        file: number[];
        offset: number[];
        bytes: number[];
        thread: number[];
      };
      pages: {
        at: number[];
        call: number[];
        kind: number[];
        file: number[];
        first: number[];
        nr: number[];
      };
      windows: {
        at: number[];
        call: number[];
        kind: number[];
        file: number[];
        first: number[];
        nr: number[];
        marker: number[];
        used: number[];
        unused: number[];
        thrashed: number[];
      };
      window_kinds: string[];
      plugs: {
        start: number[];
        end: number[];
        call: number[];
        cause: number[];
        nr: number[];
      };
      unplug_causes: string[];
      requests: {
        q: number[];
        g: number[];
        i: number[];
        d: number[];
        c: number[];
        call: number[];
        dir: number[];
        content: number[];
        sector: number[];
        sectors: number[];
        bios: number[];
        depth: number[];
        file: number[];
        first: number[];
        nr: number[];
      };
      contents: string[];
      map: {
        file: number;
        strip_pages: number;
        state: number[];
        by: (string | null)[];
        resident: number[][];
      }[];
    };
  }[];
  shift: {
    op: "read" | "write" | "sync";
    quantile: number[];
    shift_ns: number[];
    low_ns: number[];
    high_ns: number[];
  }[];
  history: {
    series: {
      name: string;
      unit: string;
      at: string[];
      value: number[];
      change_points: {
        index: number;
        change_pct: number;
        p: number;
      }[];
    }[];
  } | null;
  differences: {
    key: string;
    a: string;
    b: string;
  }[];
  incident: {
    id: string;
    title: string;
    rows: {
      id: string;
      role: string;
      published: number | null;
      simulated: number;
      unit: string;
    }[];
    claims: {
      text: string;
      held: boolean;
      required: boolean;
    }[];
    assumptions: {
      what: string;
      source: string;
    }[];
    unexplained: string;
  } | null;
}

/** `iowhy.explain/1` */
export interface Explanation {
  schema: "iowhy.explain/1";
  a: string;
  b: string;
  runs_a: number;
  runs_b: number;
  a_ns: number | null;
  b_ns: number | null;
  change_pct: number | null;
  ci_low_pct: number | null;
  ci_high_pct: number | null;
  ci_level: number;
  verdict: "regression" | "improvement" | "same" | "inconclusive";
  because: string;
  findings: {
    rule: string;
    layer: string;
    claim: string;
    confidence: number;
    evidence: {
      what: string;
      a: number | null;
      b: number | null;
      unit: "ns" | "bytes" | "pages" | "share" | "count" | "ratio" | "bytes_per_s";
    }[];
    share_of_change_pct: number | null;
    why: string;
    change: string;
    refute: string;
    since: string;
    counterfactual: {
      setting: string;
      side: string;
      change_pct_before: number | null;
      ci_before_low_pct: number | null;
      ci_before_high_pct: number | null;
      change_pct_after: number | null;
      ci_low_pct: number | null;
      ci_high_pct: number | null;
      gone_pct: number | null;
      runs: number;
      outcome: "confirmed" | "partly" | "refuted" | "not-reproduced" | "undecided";
      figures_moved: boolean | null;
      device_only: boolean;
    } | null;
    advice: {
      set: string;
      predicted_change_pct: number | null;
      measured_change_pct: number | null;
    } | null;
    certainty: number | null;
  }[];
  unexplained_pct: number | null;
  layers: {
    layer: string;
    a: number | null;
    b: number | null;
    delta: number | null;
    unit: "ns_per_operation" | "ns" | "ns_per_page" | "ns_per_request";
  }[];
  comparison: Comparison | null;
  warnings: string[];
  headline: {
    basis: "call" | "request" | "metric" | null;
    subject: string;
  };
  only_difference: {
    what: string;
    a: string;
    b: string;
  }[];
  cannot_ask: {
    rule: string;
    needs: ("calls" | "pages" | "windows" | "bios" | "requests" | "CPU states")[];
  }[];
  commands: {
    wall_s: number;
    exit: number;
    user_s: number;
    system_s: number;
    minor_faults: number;
    major_faults: number;
    read_bytes: number;
    written_bytes: number;
    sleeps: number;
    preemptions: number;
  } | null[];
}

/** `iowhy.compare/1` */
export interface Comparison {
  schema: "iowhy.compare/1";
  a: string;
  b: string;
  verdict: "regression" | "improvement" | "same" | "inconclusive";
  alpha: number;
  margin_pct: number;
  adjust: "bh" | "holm";
  draws: number;
  seed: number;
  metrics: {
    name: string;
    unit: string;
    better: "lower" | "higher";
    a: {
      n: number;
      median: number | null;
      median_low: number | null;
      median_high: number | null;
      mean: number | null;
      cv: number | null;
      min: number | null;
      max: number | null;
    };
    b: {
      n: number;
      median: number | null;
      median_low: number | null;
      median_high: number | null;
      mean: number | null;
      cv: number | null;
      min: number | null;
      max: number | null;
    };
    change_pct: number | null;
    ci_low_pct: number | null;
    ci_high_pct: number | null;
    p: number | null;
    p_adjusted: number | null;
    verdict: "regression" | "improvement" | "same" | "inconclusive";
    because: string;
    modes_a: {
      centre: number | null;
      mean: number | null;
      min: number | null;
      max: number | null;
      count: number;
      share_pct: number | null;
    }[];
    modes_b: {
      centre: number | null;
      mean: number | null;
      min: number | null;
      max: number | null;
      count: number;
      share_pct: number | null;
    }[];
    runs_needed: number | null;
    detectable_pct: number | null;
    tails: {
      quantile_pct: number | null;
      a: number | null;
      b: number | null;
      change_pct: number | null;
      ci_low_pct: number | null;
      ci_high_pct: number | null;
    }[];
    effects: Record<string, number | null>;
    methods: {
      name: string;
      reference: string;
    }[];
    warnings: {
      kind: "no-samples" | "one-sample" | "too-few" | "left-out" | "constant" | "quantised" | "not-positive" | "autocorrelated" | "order-unknown" | "few-unordered" | "too-dependent" | "drift" | "warm-up" | "modes" | "not-interleaved" | "other-machine" | "other-job" | "only-one-side" | "runs-warned" | "unequal-spread" | "noisy-machine" | "same-events";
      text: string;
      next: string;
    }[];
  }[];
  warnings: {
    kind: "no-samples" | "one-sample" | "too-few" | "left-out" | "constant" | "quantised" | "not-positive" | "autocorrelated" | "order-unknown" | "few-unordered" | "too-dependent" | "drift" | "warm-up" | "modes" | "not-interleaved" | "other-machine" | "other-job" | "only-one-side" | "runs-warned" | "unequal-spread" | "noisy-machine" | "same-events";
    text: string;
    next: string;
  }[];
  calibration: {
    job: string;
    metric: string;
    design: "interleaved" | "sequential";
    runs: number;
    per_side: number;
    comparisons: number;
    false_alarms: number;
    false_alarm_low: number | null;
    false_alarm_high: number | null;
    detectable_pct: number | null;
  }[];
  latencies: {
    quantile_pct: number | null;
    a: number | null;
    b: number | null;
    change_pct: number | null;
    ci_low_pct: number | null;
    ci_high_pct: number | null;
  }[];
  job_options: {
    name: string;
    a: (string | null)[];
    b: (string | null)[];
  }[];
}
