package main

import "github.com/spf13/cobra"

// completeWords offers fixed words for a flag in the shell.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// completeTemplates offers the names of the templates.
func completeTemplates(cmd *cobra.Command) {
	must(cmd.RegisterFlagCompletionFunc("template", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		set, err := loadTemplates()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return set.Names(), cobra.ShellCompDirectiveNoFileComp
	}))
}

// completeSessions offers the living sessions of this user.
func completeSessions(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range servers(cmd.Context()) {
		for _, x := range s.Sessions {
			ids = append(ids, x.ID)
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// must is for faults of this program alone, which a test of the help text finds.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
