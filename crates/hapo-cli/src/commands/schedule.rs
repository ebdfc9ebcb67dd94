//! `hapo schedule`: the gate's table.

use hapo_core::{Annealing, Decimal, GATES, Schedule, Threshold, gate_rule, refused_as_table};

use crate::failure::bad_input;

/// The gate's table: when the teacher may enter, step by step.
///
/// The table decides by integers: at step t the gate is open for groups with at most `success_limit`
/// successes, and -1 closes it. Another trainer that follows the table gates exactly as this one.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo schedule --group-size 8 --turn-off-epoch 1.5 --steps-per-epoch 62 --steps 200 --json"
)]
pub(crate) struct Args {
    /// N: members of a group
    #[arg(long, default_value_t = 8)]
    group_size: usize,
    /// `confidence`, `always` or `never`
    #[arg(long, default_value = "confidence")]
    gate: String,
    /// m: largest success count still treated as failure [default: 0]
    #[arg(long, conflicts_with = "gamma0")]
    success_limit: Option<usize>,
    /// γ0 by hand, as a decimal
    #[arg(long)]
    gamma0: Option<Decimal>,
    /// `e_off`: the epoch at which the teacher leaves
    #[arg(long)]
    turn_off_epoch: Option<Decimal>,
    /// The threshold never falls
    #[arg(long, conflicts_with = "turn_off_epoch")]
    no_annealing: bool,
    /// k: steepness of the fall
    #[arg(long, default_value = "10")]
    steepness: Decimal,
    /// `T_epoch`: usable prompts ÷ prompts per step, rounded down
    #[arg(long)]
    steps_per_epoch: u64,
    /// Rows of the table
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    steps: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    const HINT: &str = "see `hapo schedule --help`";
    let threshold = match args.gamma0 {
        Some(gamma0) => Threshold::Manual { gamma0 },
        None => Threshold::Derived { success_limit: args.success_limit.unwrap_or(0) },
    };
    let rule = gate_rule(&args.gate).ok_or_else(|| {
        let known: Vec<_> = GATES.iter().map(|it| it.name).collect();
        let problem = format!("--gate: expected one of {}, got `{}`", known.join(", "), args.gate);
        bad_input(problem, "`hapo list gates` describes them")
    })?;
    if let Some(problem) = refused_as_table(rule) {
        return Err(bad_input(problem, "use --gate confidence, always or never"));
    }
    let annealing = match args.turn_off_epoch {
        Some(turn_off_epoch) => Annealing::Sigmoid { turn_off_epoch, steepness: args.steepness },
        None if args.no_annealing || !rule.reads.contains(&"annealing") => Annealing::Off,
        None => return Err(bad_input("expected --turn-off-epoch or --no-annealing", HINT)),
    };
    let gate = (rule.table)(threshold, annealing);
    let schedule = Schedule::new(&gate, args.group_size, args.steps_per_epoch)
        .map_err(|it| bad_input(it.to_string(), HINT))?;
    for it in schedule.warnings() {
        errln!("warning: {it}");
    }
    let table = schedule.table(args.steps);
    if args.json {
        outln!("{}", serde_json::to_string(&table)?);
        return Ok(());
    }
    outln!("    step     epoch  threshold  open up to");
    for row in &table.steps {
        let (step, epoch, limit) = (row.step, row.epoch, row.success_limit.get());
        outln!("{step:>8} {epoch:>9.4} {:>10.6} {limit:>11}", row.threshold);
    }
    if let Some(step) = table.extinct_at_step {
        outln!("closed for good from step {}", step.0);
    } else {
        outln!("never closes for good");
    }
    outln!("{}", table.teacher_helps(args.steps));
    Ok(())
}
