//! The arithmetic of bids, as properties.

use proptest::prelude::*;

use super::*;

/// Prices as they occur, and the odd ends.
fn price() -> impl Strategy<Value = GasPrice> {
    prop_oneof![
        8 => (0_u128..1 << 50).prop_map(GasPrice),
        1 => (0_u128..20).prop_map(GasPrice),
        1 => any::<u128>().prop_map(GasPrice),
    ]
}

fn fees() -> impl Strategy<Value = Fees> {
    prop_oneof![
        (price(), price()).prop_map(|(a, b)| Fees::Dynamic {
            max_fee_per_gas: a.max(b),
            max_priority_fee_per_gas: a.min(b)
        }),
        price().prop_map(|gas_price| Fees::Legacy { gas_price }),
    ]
}

fn caps() -> impl Strategy<Value = FeeCaps> {
    (proptest::option::of(price()), proptest::option::of(price())).prop_map(
        |(max_fee_per_gas, max_priority_fee_per_gas)| FeeCaps {
            max_fee_per_gas,
            max_priority_fee_per_gas,
            max_cost: None,
        },
    )
}

fn multiplier() -> impl Strategy<Value = Multiplier> {
    (1_000_000_u32..4_000_000).prop_map(Multiplier)
}

/// Twice over in plain words: at least ten per cent more, by whole-number division.
fn ten_per_cent_more(old: GasPrice, new: GasPrice) -> bool {
    let tenth = old.0 / 10 + u128::from(!old.0.is_multiple_of(10));
    new.0 > old.0 && new.0 - old.0 >= tenth
}

proptest! {
    #[test]
    fn a_bid_is_a_tenth_more_on_each_component_and_within_the_caps(
        old in fees(), market in fees(), by in multiplier(), caps in caps()
    ) {
        if let Bid::To(bid) = outbid(Dearest::price(old), market, by, &caps) {
            prop_assert!(ten_per_cent_more(old.ceiling(), bid.ceiling()), "{bid:?}");
            prop_assert!(ten_per_cent_more(old.tip(), bid.tip()), "{bid:?}");
            prop_assert!(bid.tip() <= bid.ceiling());
            prop_assert!(caps.max_fee_per_gas.is_none_or(|cap| bid.ceiling() <= cap));
            if matches!(bid, Fees::Dynamic { .. }) {
                prop_assert!(caps.max_priority_fee_per_gas.is_none_or(|cap| bid.tip() <= cap));
            }
        }
    }

    #[test]
    fn only_a_cap_or_the_end_of_all_prices_forbids_a_bid(
        old in fees(), market in fees(), by in multiplier(), caps in caps()
    ) {
        if let Bid::AtCap { cap, needed } = outbid(Dearest::price(old), market, by, &caps) {
            prop_assert!(needed > cap || needed == GasPrice(u128::MAX), "{needed} fits under {cap}");
        }
    }

    #[test]
    fn a_higher_market_never_lowers_the_bid(
        old in fees(), low in price(), high in price(), by in multiplier(), caps in caps()
    ) {
        let market = |price| Fees::Legacy { gas_price: price };
        let bid = |price| outbid(Dearest::price(old), market(price), by, &caps);
        if let (Bid::To(below), Bid::To(above)) = (bid(low.min(high)), bid(low.max(high))) {
            prop_assert!(below.ceiling() <= above.ceiling() && below.tip() <= above.tip());
        }
    }

    #[test]
    fn bids_rise_until_the_cap_and_there_they_end(
        first in fees(), market in fees(), by in multiplier(), cap in 0_u128..1 << 60
    ) {
        let caps = FeeCaps { max_fee_per_gas: Some(GasPrice(cap)), ..FeeCaps::default() };
        let mut dearest = Dearest::price(first);
        let mut steps = 0;
        while let Bid::To(bid) = outbid(dearest, market, by, &caps) {
            prop_assert!(bid.ceiling() > dearest.ceiling && bid.tip() > dearest.tip);
            dearest = Dearest::price(bid);
            steps += 1;
            prop_assert!(steps < 1_000, "no end in sight");
        }
    }

    #[test]
    fn what_outbids_is_what_a_bid_offers(old in fees(), market in fees(), by in multiplier()) {
        let dearest = Dearest::price(old);
        if let Bid::To(bid) = outbid(dearest, market, by, &FeeCaps::default()) {
            prop_assert!(dearest.is_outbid_by(bid));
        }
        prop_assert!(!dearest.is_outbid_by(old));
    }
}

#[test]
fn the_multiplier_rounds_up_and_never_wraps() {
    assert_eq!(Multiplier(1_125_000).of(GasPrice(8)), Some(GasPrice(9)));
    assert_eq!(Multiplier(1_125_000).of(GasPrice(9)), Some(GasPrice(11)));
    assert_eq!(Multiplier(2_000_000).of(GasPrice(u128::MAX)), None);
}

#[test]
fn the_market_is_followed_when_it_runs_away() {
    let old = Fees::Dynamic { max_fee_per_gas: GasPrice(100), max_priority_fee_per_gas: GasPrice(10) };
    let market = Fees::Dynamic { max_fee_per_gas: GasPrice(1_000), max_priority_fee_per_gas: GasPrice(5) };
    let bid = outbid(Dearest::price(old), market, Multiplier(1_125_000), &FeeCaps::default());
    let expected = Fees::Dynamic { max_fee_per_gas: GasPrice(1_000), max_priority_fee_per_gas: GasPrice(12) };
    assert_eq!(bid, Bid::To(expected));
}
